// The GID table of a port: source addresses that QPs refer to by index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rdma/path.h"

namespace softhca::rdma {

class GidTable {
 public:
  /// `size`: entries; 0 for an HCA whose QPs have their own addresses.
  explicit GidTable(std::size_t size) : entries_(size) {}

  std::size_t size() const { return entries_.size(); }
  /// False if `index` is not in the table.
  bool set(std::size_t index, const SourceAddress& entry);
  bool clear(std::size_t index);
  void clear_all();

  /// Null if the entry is not set.
  const SourceAddress* get(std::size_t index) const {
    return index < entries_.size() && entries_[index] ? &*entries_[index] : nullptr;
  }
  /// Ethernet: the entry with this GID, VLAN and RoCE version; null if there is none.
  const SourceAddress* find(const Gid& gid, std::optional<std::uint16_t> vlan_id,
                            bool roce_v2) const;
  /// True if any entry has this GID.
  bool contains(const Gid& gid) const;
  /// Ethernet: true if any entry of this RoCE version is in this VLAN.
  bool has_vlan(std::optional<std::uint16_t> vlan_id, bool roce_v2) const;
  /// True if any entry has this MAC.
  bool has_mac(const Mac& mac) const;

  /// Changes with every set() and clear().
  std::uint32_t generation() const { return generation_; }

 private:
  std::vector<std::optional<SourceAddress>> entries_;
  std::size_t used_end_ = 0;  ///< all entries from this index on are clear
  std::uint32_t generation_ = 0;
};

}  // namespace softhca::rdma
