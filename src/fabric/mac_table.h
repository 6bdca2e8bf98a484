// Which port a station was last heard on (IEEE 802.1Q 8.7 and 8.8).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "wire/mac_address.h"

namespace softhca::fabric {

/// Fixed in size: an address that finds its place full takes that of the one not heard for
/// longest. A station that is forgotten is flooded to, so nothing is lost but speed.
class MacTable {
 public:
  /// Room for at least `macs` addresses.
  explicit MacTable(std::size_t macs);

  /// `mac` was heard on `port`. Multicast and zero addresses are no stations.
  void learn(const wire::MacAddress& mac, std::uint32_t port);
  std::optional<std::uint32_t> find(const wire::MacAddress& mac) const;
  void forget_port(std::uint32_t port);
  /// Nothing is forgotten, but find() is not what decides: generation() changes.
  void touch() { ++generation_; }
  /// Changes whenever find() might give another answer than before.
  std::uint64_t generation() const { return generation_; }

 private:
  struct Entry {
    std::uint64_t mac = 0;  ///< 0: free
    std::uint64_t heard = 0;
    std::uint32_t port = 0;
  };
  static constexpr std::size_t kWays = 4;
  using Set = std::array<Entry, kWays>;

  std::size_t set_of(std::uint64_t mac) const;

  std::vector<Set> sets_;  ///< as many as a power of two
  std::size_t set_mask_;   ///< how many sets, less one
  std::uint64_t clock_ = 0;
  std::uint64_t generation_ = 1;
};

}  // namespace softhca::fabric
