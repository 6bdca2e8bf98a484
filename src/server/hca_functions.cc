#include "server/hca_functions.h"

#include <variant>

#include "connectx/device.h"
#include "connectx/fault_names.h"
#include "jingzhao/device.h"
#include "jingzhao/fault_names.h"

namespace softhca::server {
namespace {

const hca::FaultDialect& connectx_dialect() {
  static const hca::FaultDialect dialect{.device = "a ConnectX or an RSNIC",
                                         .names = connectx::fault_names()};
  return dialect;
}

/// Calls `use` with the faults of an HCA.
template <class Use>
void with_faults(pcie::Function& function, Use&& use) {
  if (auto* device = dynamic_cast<connectx::Device*>(&function)) return use(device->faults());
  if (auto* device = dynamic_cast<jingzhao::Device*>(&function)) return use(device->faults());
}

}  // namespace

void follow_fault_rules(pcie::Function& function) {
  with_faults(function, [](auto& faults) { faults.follow_rules(); });
}

const hca::FaultDialect* dialect_of(const pcie::Function& function) {
  if (dynamic_cast<const connectx::Device*>(&function) != nullptr) return &connectx_dialect();
  if (dynamic_cast<const jingzhao::Device*>(&function) != nullptr) {
    return &jingzhao::fault_dialect();
  }
  return nullptr;
}

const hca::FaultDialect* dialect_of(const DeviceSpec& spec) {
  if (std::holds_alternative<connectx::DeviceOptions>(spec)) return &connectx_dialect();
  if (std::holds_alternative<jingzhao::DeviceOptions>(spec)) return &jingzhao::fault_dialect();
  return nullptr;
}

std::string jingzhao_faults_page() { return hca::dialect_table(jingzhao::fault_dialect()); }

}  // namespace softhca::server
