// The largest datagram that reaches a hub, found by probes (RFC 8899): a probe of a size is
// answered if the path carries it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "trunk/datagram.h"
#include "util/clock.h"

namespace softhca::trunk {

class PathMtu {
 public:
  explicit PathMtu(util::Time now) : next_(now) {}

  /// The largest UDP payload that is known to arrive.
  std::size_t size() const { return kSizes[reached_]; }
  /// When probe() is due.
  util::Time next() const { return next_; }
  /// The size to probe now; 0: none is due.
  std::size_t probe(util::Time now) {
    if (now < next_ || reached_ + 1 == kSizes.size()) return 0;
    next_ = now + (++tries_ % kTries == 0 ? kRest : kBetween);
    return kSizes[reached_ + 1];
  }
  /// A probe of this size has arrived.
  void note(std::size_t size, util::Time now) {
    if (reached_ + 1 == kSizes.size() || size != kSizes[reached_ + 1]) return;
    ++reached_;
    tries_ = 0;
    next_ = reached_ + 1 == kSizes.size() ? util::kNever : now;
  }

 private:
  /// UDP payloads of these MTUs: the least of IPv6; 1500 by IPv6 and by IPv4; 9000 by both.
  static constexpr std::array<std::size_t, 5> kSizes = {kDatagramMin, 1452, 1472, 8952,
                                                        kDatagramMax};
  static constexpr unsigned kTries = 3;
  static constexpr auto kBetween = std::chrono::milliseconds(200);
  static constexpr auto kRest = std::chrono::seconds(60);

  std::size_t reached_ = 0;
  unsigned tries_ = 0;
  util::Time next_;
};

}  // namespace softhca::trunk
