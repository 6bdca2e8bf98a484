#include "door/card/foreign_addresses.h"

#include <fmt/format.h>

#include <string_view>

#include "door/card/addresses.h"
#include "door/card/own_address.h"
#include "util/log.h"
#include "wire/address_text.h"

namespace softhca::door {
namespace {

/// After this many addresses, all are checked again.
constexpr std::size_t kWarnedMax = 4096;

/// "network default", derived from the run's directory (run/run_directory.h).
std::string name_of(std::string_view directory) {
  constexpr std::string_view kMark = "-fabric-";
  const auto at = directory.rfind(kMark);
  if (at == std::string_view::npos) return "this private network";
  return fmt::format("network {}", directory.substr(at + kMark.size()));
}

}  // namespace

void ForeignAddresses::look_at(const driver::Gid& to, bool has_sockets) {
  if (!is_process(to) && !has_sockets) return;
  if (warned_.size() >= kWarnedMax) warned_.clear();
  if (!warned_.insert(to).second) return;
  const auto text = wire::text_of(to);
  if (!is_process(to)) {
    util::log(util::LogLevel::kWarning,
              "{} is not reached: no program of {} has it, and the host has no route to it (see ip "
              "route get {})",
              text, name_of(directory_), text);
    return;
  }
  if (!is_gone(directory_, to)) return;
  util::log(util::LogLevel::kWarning,
            "no process of {} has the address {}: nothing that is sent there arrives. A program is "
            "on another network if it runs with --private, with another --fabric, or as another "
            "user",
            name_of(directory_), text);
}

}  // namespace softhca::door
