// Options of one card.
#pragma once

#include <cstdint>
#include <string>

#include "jingzhao/profile.h"
#include "wire/frame.h"

namespace softhca::jingzhao {

/// Largest ICM cache: more entries than any table has.
inline constexpr std::uint32_t kIcmCacheMax = 1 << 16;

struct DeviceOptions {
  std::string name = "jingzhao0";  ///< name in logs
  std::uint64_t board_id = 0x0123456789ABCDEF;
  wire::Link link = wire::Link::kEthernet;
  std::uint64_t node_guid = 0x025FCA0000000100;  ///< InfiniBand link only; the port GUID is one
                                                 ///< more
  /// Capacity of the ICM cache of each table, in entries.
  std::uint32_t icm_cache = 1024;
  Profile profile = Profile::kDocument;
};

}  // namespace softhca::jingzhao
