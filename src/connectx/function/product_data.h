// The card's Vital Product Data (PRM Table 6, PCI 3.0 appendix I), as `lspci -vv` shows it.
#pragma once

#include <cstdint>

#include "connectx/base/model.h"
#include "pcie/config_space.h"

namespace softhca::connectx {

/// The serial number and V3 contain `node_guid`, so they are as unique. Drivers recognize functions
/// of the same card by V3.
pcie::VitalProductData product_data(const Model& model, std::uint64_t node_guid);

}  // namespace softhca::connectx
