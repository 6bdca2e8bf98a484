// The HCAs among functions, as fault rules see them.
#pragma once

#include <string>

#include "hca/fault_dialect.h"
#include "pcie/function.h"
#include "server/device_spec.h"

namespace softhca::server {

/// To be called after a change of the rules. No effect on a function that is no HCA.
void follow_fault_rules(pcie::Function& function);
/// The rules that the function takes. Null if it is no HCA.
const hca::FaultDialect* dialect_of(const pcie::Function& function);
const hca::FaultDialect* dialect_of(const DeviceSpec& spec);

/// The differences of a JingZhao, for docs/faults-hca.md.
std::string jingzhao_faults_page();

}  // namespace softhca::server
