// The port's own addresses: what a RoCE packet of ours carries as its source, and which
// destinations are ours.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "rdma/types.h"

namespace softhca::rdma {

/// An entry of the RoCE address table.
struct GidEntry {
  Gid gid{};
  Mac mac{};
  std::optional<std::uint16_t> vlan_id;  ///< 12 bits; tags what is sent, must match what arrives
  bool roce_v2 = true;                   ///< v1 entries are kept but carry no traffic
};

/// Equality in two loads each: these are compared for every packet.
inline bool same(const Gid& a, const Gid& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
inline bool same(const Mac& a, const Mac& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

class GidTable {
 public:
  static constexpr std::size_t kSize = 256;

  /// False if `index` is not in the table.
  bool set(std::size_t index, const GidEntry& entry);
  bool clear(std::size_t index);
  void clear_all();

  /// Null if the entry is not set.
  const GidEntry* get(std::size_t index) const {
    return index < kSize && entries_[index] ? &*entries_[index] : nullptr;
  }
  /// The RoCE v2 entry with this GID and VLAN; null if there is none.
  const GidEntry* find(const Gid& gid, std::optional<std::uint16_t> vlan_id) const;
  /// Whether any entry has this GID.
  bool contains(const Gid& gid) const;
  /// Whether any RoCE v2 entry has this MAC.
  bool has_mac(const Mac& mac) const;

  /// Changes with every set and clear: prepared headers are good as long as this is the same.
  std::uint32_t generation() const { return generation_; }

 private:
  std::array<std::optional<GidEntry>, kSize> entries_;
  std::size_t used_end_ = 0;  ///< all entries from here on are clear
  std::uint32_t generation_ = 1;
};

}  // namespace softhca::rdma
