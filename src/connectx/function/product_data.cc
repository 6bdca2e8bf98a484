#include "connectx/function/product_data.h"

#include <fmt/format.h>

namespace softhca::connectx {

pcie::VitalProductData product_data(const Model& model, std::uint64_t node_guid) {
  return {.product_name = std::string(model.product_name),
          .read_only = {
              {"PN", std::string(model.part_number)},
              {"EC", "A0"},
              {"SN", fmt::format("SHC{:016X}", node_guid)},
              {"V0", "PCIeGen3 x16"},
              {"V3", fmt::format("{:032x}", node_guid)},
          }};
}

}  // namespace softhca::connectx
