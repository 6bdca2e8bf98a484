// Counters of the traffic through the port. Each frame is counted once, in one cell. The counters
// of the port (PRM 11.1.5) and of the vport (PRM 12.17) are sums of cells.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "wire/ethernet.h"
#include "wire/frame.h"
#include "wire/mac_address.h"

namespace softhca::connectx {

/// Packets and octets (without FCS) of one kind of traffic.
struct TrafficCounter {
  std::uint64_t packets = 0;
  std::uint64_t octets = 0;

  void add(std::uint64_t bytes, std::uint64_t count = 1) {
    packets += count;
    octets += bytes;
  }
  TrafficCounter& operator+=(const TrafficCounter& other) {
    packets += other.packets;
    octets += other.octets;
    return *this;
  }
  friend TrafficCounter operator+(TrafficCounter a, const TrafficCounter& b) { return a += b; }
};

/// Kind of destination address.
enum class Cast : std::uint8_t { kUnicast, kMulticast, kBroadcast };
/// The consumer of a frame.
enum class Service : std::uint8_t { kEthernet, kRdma };
/// The way of a frame: across the wire, or back to the sending port (PRM 3.4).
enum class Way : std::uint8_t { kWire, kLoopback };

// Called for every frame: keep these inline and minimal.

inline Cast cast_of(const wire::MacAddress& destination) {
  if (!destination.is_multicast()) return Cast::kUnicast;
  return destination == wire::MacAddress::broadcast() ? Cast::kBroadcast : Cast::kMulticast;
}
/// @pre the head has an Ethernet header
inline wire::MacAddress destination_of(const wire::Frame& frame) {
  const wire::EthernetView header(frame.link_header());
  return wire::MacAddress::from(header.get(wire::EthernetLayout::destination));
}
/// @pre the head has an Ethernet header
inline Cast cast_of(const wire::Frame& frame) { return cast_of(destination_of(frame)); }
/// PCP of the 802.1Q tag. @pre the Ethernet header announces a tag
unsigned priority_of_tag(const wire::Frame& frame);
/// PCP of the 802.1Q tag; 0 without a tag. @pre the head has an Ethernet header
inline unsigned priority_of(const wire::Frame& frame) {
  const wire::EthernetView header(frame.link_header());
  const auto type = wire::EtherType(header.get(wire::EthernetLayout::ether_type));
  return type == wire::EtherType::kVlan ? priority_of_tag(frame) : 0;
}

/// Frames by destination and Ethernet priority.
class TrafficTable {
 public:
  static constexpr unsigned kPriorities = 8;

  void add(Cast cast, unsigned priority, std::uint64_t bytes, std::uint64_t frames = 1) {
    cells_[priority][static_cast<std::size_t>(cast)].add(bytes, frames);
  }
  /// Counts a frame, or all packets of a train.
  void add(Cast cast, unsigned priority, const wire::Frame& frame) {
    add(cast, priority, frame.size_of_all(), frame.packets());
  }
  TrafficCounter& cell(Cast cast, unsigned priority) {
    return cells_[priority][static_cast<std::size_t>(cast)];
  }
  TrafficCounter of(Cast cast) const;
  /// @pre priority < kPriorities
  TrafficCounter of_priority(unsigned priority) const;
  TrafficCounter total() const;
  TrafficTable& operator+=(const TrafficTable& other);
  friend TrafficTable operator+(TrafficTable a, const TrafficTable& b) { return a += b; }

 private:
  static constexpr std::size_t kCasts = 3;
  std::array<std::array<TrafficCounter, kCasts>, kPriorities> cells_{};
};

/// A cache of the last frame's cell. The next frame usually has the same Ethernet header, and is
/// counted in the same cell.
class LastCell {
 public:
  /// Null if this frame belongs to another cell. @pre the head has an Ethernet header
  TrafficCounter* find(const wire::Frame& frame) const {
    return std::memcmp(frame.head_room().data(), header_.data(), kSize) == 0 ? cell_ : nullptr;
  }
  /// Fast path of find(): true only if it would find a cell, which is cell().
  bool can_find_fast(const wire::Frame& frame) const { return frame.flow() == flow_; }
  /// The cached cell.
  TrafficCounter& cell() const { return *cell_; }
  /// Caches the cell of a frame. Forgets it if the frame is tagged, because the priority of the tag
  /// is behind the compared header.
  void remember(const wire::Frame& frame, TrafficCounter& cell) {
    const wire::EthernetView header(frame.link_header());
    const auto type = wire::EtherType(header.get(wire::EthernetLayout::ether_type));
    std::memcpy(header_.data(), frame.link_header().data(), kSize);
    cell_ = type == wire::EtherType::kVlan ? nullptr : &cell;
    flow_ = cell_ == nullptr || frame.flow() == 0 ? kNone : frame.flow();
  }
  void forget() {
    cell_ = nullptr;
    flow_ = kNone;
  }

 private:
  static constexpr std::size_t kSize = wire::EthernetLayout::kSize;
  static constexpr wire::FlowId kNone = UINT64_MAX;  ///< of no frame
  std::array<std::byte, kSize> header_{};
  wire::FlowId flow_ = kNone;
  TrafficCounter* cell_ = nullptr;
};

struct TrafficCounters {
  /// Number of size classes, with FCS, in the steps of RFC 2819: 64, 65 to 127, and so on to 8192
  /// to 10239.
  static constexpr std::size_t kSizes = 10;
  /// @pre octets >= 64, with FCS
  static constexpr std::size_t size_class(std::size_t octets) {
    // Each class is twice as wide as the one before it. Exceptions: the first is a single size, and
    // one is split at 1518.
    const auto step = static_cast<std::size_t>(std::bit_width(octets)) - std::bit_width(64u) + 1;
    return step + (octets > 1518 ? 1 : 0) - (octets == 64 ? 1 : 0);
  }

  std::array<TrafficTable, 4> received;  ///< by index()
  std::array<TrafficTable, 4> transmitted;
  std::array<std::uint64_t, kSizes> received_sizes{};  ///< from the wire
  std::uint64_t received_undersize = 0;                ///< from the wire, shorter than 64 octets
  TrafficCounter received_oversize;                    ///< longer than the port's MTU, dropped
  /// By priority: frames for a vport that is down, without a matching rule, or without a receive
  /// WQE.
  std::array<std::uint64_t, TrafficTable::kPriorities> received_discards{};
  TrafficCounter received_errors;          ///< runts, and frames longer than the vport's MTU
  TrafficCounter transmit_errors;          ///< frames that the port or the SQ's rules block
  std::uint64_t transmitted_discards = 0;  ///< while the port or the vport was down
  std::uint64_t link_downs = 0;

  static constexpr std::size_t index(Service service, Way way) {
    return 2 * static_cast<std::size_t>(service) + static_cast<std::size_t>(way);
  }
  const TrafficTable& rx(Service service, Way way) const { return received[index(service, way)]; }
  const TrafficTable& tx(Service service, Way way) const {
    return transmitted[index(service, way)];
  }
  TrafficTable& rx(Service service, Way way) { return received[index(service, way)]; }
  TrafficTable& tx(Service service, Way way) { return transmitted[index(service, way)]; }
  std::uint64_t all_received_discards() const;

  /// The counts since `earlier` was copied.
  TrafficCounters since(const TrafficCounters& earlier) const;
};
static_assert(std::is_trivially_copyable_v<TrafficCounters>);

}  // namespace softhca::connectx
