// The card's Vital Product Data (PRM Table 6, PCI 3.0 appendix I), as `lspci -vv` shows it.
#pragma once

#include <cstdint>

#include "connectx/base/model.h"
#include "pcie/config_space.h"

namespace softhca::connectx {

/// `node_guid` is used for the serial number and for V3, by which drivers recognize functions of
/// the same card. Both are as unique as `node_guid`.
pcie::VitalProductData product_data(const Model& model, std::uint64_t node_guid);

}  // namespace softhca::connectx
