// What distinguishes one card from another.
#pragma once

#include <cstdint>
#include <string>

namespace softhca::jingzhao {

struct DeviceOptions {
  std::string name = "jingzhao0";  ///< for logs
  std::uint64_t board_id = 0x0123456789ABCDEF;
  /// Entries of each table of the ICM that are kept on chip.
  std::uint32_t icm_cache = 1024;
};

}  // namespace softhca::jingzhao
