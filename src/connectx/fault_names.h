// The names of the device's documents that fault rules may use.
#pragma once

#include "hca/fault_rule.h"

namespace softhca::connectx {

/// Those of a ConnectX and an RSNIC.
const hca::FaultNames& fault_names();

}  // namespace softhca::connectx
