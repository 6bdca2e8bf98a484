// What distinguishes one card from another.
#pragma once

#include <cstdint>
#include <string>

#include "jingzhao/profile.h"
#include "wire/frame.h"

namespace softhca::jingzhao {

/// Entries of a table that fit on a chip: more than any table has.
inline constexpr std::uint32_t kIcmCacheMax = 1 << 16;

struct DeviceOptions {
  std::string name = "jingzhao0";  ///< for logs
  std::uint64_t board_id = 0x0123456789ABCDEF;
  wire::Link link = wire::Link::kEthernet;
  std::uint64_t node_guid = 0x025FCA0000000100;  ///< of an InfiniBand link; its port's is one more
  /// Entries of each table of the ICM that are kept on chip.
  std::uint32_t icm_cache = 1024;
  Profile profile = Profile::kDocument;
};

}  // namespace softhca::jingzhao
