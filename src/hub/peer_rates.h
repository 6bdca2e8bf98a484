// How many messages a second each peer may send: a token bucket for each. The addresses of
// datagrams can be forged, so the number of buckets is bounded. A peer that has none shares one
// with all others like it, and cannot use the tokens of those that have one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "util/clock.h"
#include "wire/gid.h"

namespace softhca::hub {

class PeerRates {
 public:
  struct Options {
    std::uint32_t burst = 1;       ///< messages that a peer may send in a row
    std::uint32_t per_second = 1;  ///< messages a second after that
    std::size_t peers_max = 1024;  ///< peers that have a bucket
  };

  explicit PeerRates(const Options& options)
      : options_(options), most_(options.burst * kToken), others_{.tokens = most_} {}

  /// Whether the peer may send so many more messages now. If so, counts them.
  bool allow(const wire::Gid& peer, util::Time now, std::uint32_t messages = 1);
  std::size_t peers() const { return buckets_.size(); }

 private:
  /// One message. Tokens are as divisible as a clock of nanoseconds needs.
  static constexpr std::uint64_t kToken = 1'000'000'000;

  struct Bucket {
    std::uint64_t tokens = 0;
    util::Time filled{};  ///< when `tokens` was right
  };

  void refill(Bucket& bucket, util::Time now) const;
  Bucket& bucket_of(const wire::Gid& peer, util::Time now);
  Bucket* replace_idle(const wire::Gid& peer, util::Time now);

  const Options options_;
  const std::uint64_t most_;  ///< tokens of a full bucket
  std::map<wire::Gid, Bucket> buckets_;
  std::vector<wire::Gid> order_;  ///< the peers that have buckets
  std::size_t next_ = 0;          ///< where the search for one to replace goes on
  Bucket others_;                 ///< of the peers that have none
};

}  // namespace softhca::hub
