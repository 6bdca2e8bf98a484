#include "connectx/port/traffic_counters.h"

#include <numeric>

#include "wire/ethernet.h"
#include "wire/vlan.h"

namespace softhca::connectx {

using wire::EthernetLayout;

unsigned priority_of_tag(const wire::Frame& frame) {
  const auto head = frame.head();
  if (head.size() < EthernetLayout::kSize + wire::VlanLayout::kSize) return 0;
  return wire::VlanView(head.subspan(EthernetLayout::kSize)).get(wire::VlanLayout::pcp);
}

TrafficCounter TrafficTable::of(Cast cast) const {
  TrafficCounter sum;
  for (const auto& casts : cells_) sum += casts[static_cast<std::size_t>(cast)];
  return sum;
}

TrafficCounter TrafficTable::of_priority(unsigned priority) const {
  TrafficCounter sum;
  for (const auto& cell : cells_[priority]) sum += cell;
  return sum;
}

TrafficCounter TrafficTable::total() const {
  TrafficCounter sum;
  for (unsigned priority = 0; priority < kPriorities; ++priority) sum += of_priority(priority);
  return sum;
}

TrafficTable& TrafficTable::operator+=(const TrafficTable& other) {
  for (std::size_t priority = 0; priority < kPriorities; ++priority) {
    for (std::size_t cast = 0; cast < kCasts; ++cast) {
      cells_[priority][cast] += other.cells_[priority][cast];
    }
  }
  return *this;
}

std::uint64_t TrafficCounters::all_received_discards() const {
  return std::accumulate(received_discards.begin(), received_discards.end(), std::uint64_t{0});
}

TrafficCounters TrafficCounters::since(const TrafficCounters& earlier) const {
  // All members of the structure are 64-bit counters, which are subtracted one by one.
  using All = std::array<std::uint64_t, sizeof(TrafficCounters) / sizeof(std::uint64_t)>;
  static_assert(sizeof(All) == sizeof(TrafficCounters));
  auto now = std::bit_cast<All>(*this);
  const auto before = std::bit_cast<All>(earlier);
  for (std::size_t i = 0; i < now.size(); ++i) now[i] -= before[i];
  return std::bit_cast<TrafficCounters>(now);
}

}  // namespace softhca::connectx
