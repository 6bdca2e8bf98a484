// The addresses that a process reaches by RoCEv2 over UDP: those that packets came from, and those
// that nothing on its hub has answered for.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "util/clock.h"
#include "wire/gid.h"

namespace softhca::hub {

/// Bounded: an address may replace another one, which must then be asked for again. Packets replace
/// addresses that other packets came from before those that were asked for: anyone can forge a
/// source.
class RocePeers {
 public:
  /// How long a station of the hub may take to answer for an address.
  static constexpr util::Duration kGrace = std::chrono::milliseconds(50);

  /// A packet has come from `address`.
  void note_source(const wire::Gid& address) {
    if (address != last_) note_other_source(address);
  }
  bool is_source(const wire::Gid& address) const {
    const auto* const peer = find(address);
    return peer != nullptr && peer->is_source();
  }
  /// The hub was asked for `address`.
  void ask(const wire::Gid& address, util::Time now);
  /// Whether `address` is beyond the hub, as far as is known.
  bool is_beyond(const wire::Gid& address, util::Time now) const;

 private:
  struct Peer {
    wire::Gid address;
    util::Time beyond_from = util::kNever;
    std::uint64_t noted = 0;  ///< order of the last changes; 0: free

    bool is_source() const { return beyond_from == util::Time::min(); }
  };
  /// The peers whose addresses have one hash.
  using Set = std::array<Peer, 4>;

  void note_other_source(const wire::Gid& address);
  Set& set_of(const wire::Gid& address) const;
  Peer* find(const wire::Gid& address) const;
  Peer& replace(const wire::Gid& address);

  static constexpr std::size_t kSets = 256;
  std::unique_ptr<std::array<Set, kSets>> sets_ = std::make_unique<std::array<Set, kSets>>();
  std::uint64_t noted_ = 0;
  wire::Gid last_;  ///< the last source; zero: it was replaced
};

/// The kernel's route to an address.
struct UdpRoute {
  unsigned mtu = 0;  ///< of the path in bytes, as far as the kernel knows; 0: not known
};
/// Nothing: the kernel has no route from the own address `from` to `to`, or `to` is no address of
/// one host.
std::optional<UdpRoute> find_route(const wire::Gid& from, const wire::Gid& to);

}  // namespace softhca::hub
