#include "connectx/function/product_data.h"

#include <fmt/format.h>

namespace softhca::connectx {

pcie::VitalProductData product_data(std::uint64_t node_guid) {
  return {.product_name = "softhca ConnectX-4",
          .read_only = {
              {"PN", "softhca-cx4"},
              {"EC", "A0"},
              {"SN", fmt::format("SHC{:016X}", node_guid)},
              {"V0", "PCIeGen3 x16"},
              {"V3", fmt::format("{:032x}", node_guid)},
          }};
}

}  // namespace softhca::connectx
