// The card's Vital Product Data (PRM Table 6, PCI 3.0 appendix I): what `lspci -vv` shows of it.
#pragma once

#include <cstdint>

#include "connectx/base/model.h"
#include "pcie/config_space.h"

namespace softhca::connectx {

/// `node_guid` makes the serial number, and V3, the identifier by which drivers tell which
/// functions are of one card: both are unique as it is.
pcie::VitalProductData product_data(const Model& model, std::uint64_t node_guid);

}  // namespace softhca::connectx
