// Maps stations to the ports on which they were last seen (IEEE 802.1Q 8.7 and 8.8).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "wire/mac_address.h"

namespace softhca::fabric {

/// Fixed in size: in a full set, a new address replaces the least recently seen one. Frames to a
/// forgotten station are flooded, which costs only speed.
class MacTable {
 public:
  /// Room for at least `macs` addresses.
  explicit MacTable(std::size_t macs);

  /// Learns that `mac` sends on `port`. Multicast and zero addresses are not learned.
  void learn(const wire::MacAddress& mac, std::uint32_t port);
  std::optional<std::uint32_t> find(const wire::MacAddress& mac) const;
  void forget_port(std::uint32_t port);
  /// Changes generation() and keeps all entries: results of a Forwarder may have changed.
  void touch() { ++generation_; }
  /// Changes whenever the result of find() may change.
  std::uint64_t generation() const { return generation_; }

 private:
  struct Entry {
    std::uint64_t mac = 0;  ///< 0: free
    std::uint64_t learned = 0;
    std::uint32_t port = 0;
  };
  static constexpr std::size_t kWays = 4;
  using Set = std::array<Entry, kWays>;

  std::size_t set_of(std::uint64_t mac) const;

  std::vector<Set> sets_;  ///< their number is a power of two
  std::size_t set_mask_;   ///< number of sets - 1
  std::uint64_t clock_ = 0;
  std::uint64_t generation_ = 1;
};

}  // namespace softhca::fabric
