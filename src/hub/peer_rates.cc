#include "hub/peer_rates.h"

#include <algorithm>

namespace softhca::hub {
namespace {

/// Buckets that a new peer looks at for one to replace.
constexpr unsigned kTries = 4;

}  // namespace

bool PeerRates::allow(const wire::Gid& peer, util::Time now, std::uint32_t messages) {
  auto& bucket = bucket_of(peer, now);
  refill(bucket, now);
  const auto needed = messages * kToken;
  if (bucket.tokens < needed) return false;
  bucket.tokens -= needed;
  return true;
}

void PeerRates::refill(Bucket& bucket, util::Time now) const {
  if (now <= bucket.filled) return;
  const auto passed = static_cast<std::uint64_t>((now - bucket.filled).count());
  const auto needed = (most_ - bucket.tokens) / options_.per_second;
  bucket.filled = now;
  bucket.tokens = passed > needed ? most_ : bucket.tokens + passed * options_.per_second;
}

PeerRates::Bucket& PeerRates::bucket_of(const wire::Gid& peer, util::Time now) {
  if (const auto at = buckets_.find(peer); at != buckets_.end()) return at->second;
  if (order_.size() < options_.peers_max) {
    order_.push_back(peer);
    return buckets_.emplace(peer, Bucket{.tokens = most_, .filled = now}).first->second;
  }
  auto* const replaced = replace_idle(peer, now);
  return replaced == nullptr ? others_ : *replaced;
}

/// A full bucket says no more about its peer than none does.
PeerRates::Bucket* PeerRates::replace_idle(const wire::Gid& peer, util::Time now) {
  for (unsigned i = 0; i != kTries && !order_.empty(); ++i) {
    auto& oldest = order_[next_++ % order_.size()];
    const auto at = buckets_.find(oldest);
    refill(at->second, now);
    if (at->second.tokens != most_) continue;
    buckets_.erase(at);
    oldest = peer;
    return &buckets_.emplace(peer, Bucket{.tokens = most_, .filled = now}).first->second;
  }
  return nullptr;
}

}  // namespace softhca::hub
