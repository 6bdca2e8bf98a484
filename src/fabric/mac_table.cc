#include "fabric/mac_table.h"

#include <algorithm>
#include <bit>

namespace softhca::fabric {

MacTable::MacTable(std::size_t macs)
    : sets_(std::bit_ceil((macs + kWays - 1) / kWays)), set_mask_(sets_.size() - 1) {}

std::size_t MacTable::set_of(std::uint64_t mac) const {
  // Fibonacci hashing: the high bits of the product depend on all bits of the address.
  // no format: a hash
  return static_cast<std::size_t>((mac * 0x9e3779b97f4a7c15u) >> 32) & set_mask_;
}

void MacTable::learn(const wire::MacAddress& mac, std::uint32_t port) {
  if (mac.is_multicast() || mac.is_zero()) return;
  const auto number = mac.to_u64();
  auto& set = sets_[set_of(number)];
  auto entry =
      std::find_if(set.begin(), set.end(), [&](const Entry& e) { return e.mac == number; });
  if (entry == set.end()) {
    // Free entries were never seen, so they are the oldest.
    entry = std::min_element(set.begin(), set.end(),
                             [](const Entry& a, const Entry& b) { return a.learned < b.learned; });
  }
  if (entry->mac != number || entry->port != port) ++generation_;
  *entry = {number, ++clock_, port};
}

std::optional<std::uint32_t> MacTable::find(const wire::MacAddress& mac) const {
  const auto number = mac.to_u64();
  if (number == 0) return std::nullopt;
  for (const auto& entry : sets_[set_of(number)]) {
    if (entry.mac == number) return entry.port;
  }
  return std::nullopt;
}

void MacTable::forget_port(std::uint32_t port) {
  ++generation_;
  for (auto& set : sets_) {
    for (auto& entry : set) {
      if (entry.mac != 0 && entry.port == port) entry = {};
    }
  }
}

}  // namespace softhca::fabric
