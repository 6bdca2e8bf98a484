#include "connectx/fault_names.h"

#include <limits>
#include <type_traits>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

using namespace spec::connectx;

namespace {

/// All values of the enumeration that have a name.
template <class Enum>
std::vector<hca::FaultName> names_of() {
  using Number = std::underlying_type_t<Enum>;
  std::vector<hca::FaultName> names;
  for (std::uint32_t value = 0; value <= std::numeric_limits<Number>::max(); ++value) {
    const auto name = to_string(static_cast<Enum>(value));
    if (!name.empty()) names.push_back({.name = name, .value = value});
  }
  return names;
}

}  // namespace

const hca::FaultNames& fault_names() {
  static_assert(sizeof(command_opcode) <= 2);
  static const hca::FaultNames names{.requests = names_of<wqe_opcode>(),
                                     .commands = names_of<command_opcode>(),
                                     .statuses = names_of<command_status>(),
                                     .syndromes = names_of<health_syndrome>()};
  return names;
}

}  // namespace softhca::connectx
