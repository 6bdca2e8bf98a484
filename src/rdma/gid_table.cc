#include "rdma/gid_table.h"

#include <algorithm>

namespace softhca::rdma {

bool GidTable::set(std::size_t index, const SourceAddress& entry) {
  if (index >= entries_.size()) return false;
  entries_[index] = entry;
  used_end_ = std::max(used_end_, index + 1);
  ++generation_;
  return true;
}

bool GidTable::clear(std::size_t index) {
  if (index >= entries_.size()) return false;
  entries_[index].reset();
  while (used_end_ != 0 && !entries_[used_end_ - 1]) --used_end_;
  ++generation_;
  return true;
}

void GidTable::clear_all() {
  std::fill(entries_.begin(), entries_.end(), std::nullopt);
  used_end_ = 0;
  ++generation_;
}

const SourceAddress* GidTable::find(const Gid& gid, std::optional<std::uint16_t> vlan_id,
                                    bool roce_v2) const {
  for (std::size_t i = 0; i < used_end_; ++i) {
    const auto& entry = entries_[i];
    if (entry && entry->roce_v2 == roce_v2 && same(entry->gid, gid) && entry->vlan_id == vlan_id) {
      return &*entry;
    }
  }
  return nullptr;
}

bool GidTable::contains(const Gid& gid) const {
  return std::any_of(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(used_end_),
                     [&](const auto& entry) { return entry && same(entry->gid, gid); });
}

bool GidTable::has_vlan(std::optional<std::uint16_t> vlan_id, bool roce_v2) const {
  return std::any_of(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(used_end_),
                     [&](const auto& entry) {
                       return entry && entry->roce_v2 == roce_v2 && entry->vlan_id == vlan_id;
                     });
}

bool GidTable::has_mac(const Mac& mac) const {
  return std::any_of(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(used_end_),
                     [&](const auto& entry) { return entry && same(entry->mac, mac); });
}

}  // namespace softhca::rdma
