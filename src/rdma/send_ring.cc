#include "rdma/send_ring.h"

#include <algorithm>
#include <utility>

#include "rdma/engine.h"

namespace softhca::rdma {

namespace {

/// Work (util::WorkBudget) of allocating or freeing a ring. A ring of the first size is part of the
/// request's cost.
constexpr std::int64_t ring_work(std::size_t entries) {
  constexpr std::int64_t kEntryWork = 40;
  return entries <= SendRing::kEntriesFirst ? 0 : static_cast<std::int64_t>(entries) * kEntryWork;
}

}  // namespace

bool SendRing::grow() {
  if (lent_ == nullptr) {
    begin_ = tail_;
    return grow_to(wish_) || grow_to(kEntriesFirst) || grow_to(1);
  }
  return lent_->size != kEntriesMax && grow_to(std::max(kEntriesFirst, lent_->size * 2));
}

bool SendRing::grow_to(std::size_t size) {
  auto* larger = engine_.rings.requests.take(size);
  if (larger == nullptr) {
    larger = make(size);
    if (larger == nullptr) return false;
  }
  if (lent_ != nullptr) {
    // Move entries to their positions in the larger ring. Swapping keeps the vectors' capacity in
    // both.
    for (auto i = head_; i != tail_; ++i) std::swap(larger->entries[i & (size - 1)], entry(i));
    give();
  }
  if (size != 1 && !larger->share.holds()) reserve_share(*larger);
  lent_ = larger;
  entries_ = larger->entries.get();
  size_ = size;
  mask_ = size - 1;
  engine_.rings.update();
  return true;
}

/// Null if all QPs together have reached their limit of requests.
[[gnu::noinline]] SendRing::Ring* SendRing::make(std::size_t size) {
  auto& rings = engine_.rings.requests;
  const auto own = lent_ != nullptr && lent_->size != 1 ? lent_->size : 0;
  const auto enough = [&] { return size == 1 || engine_.rings.budget.left() + own >= size; };
  if (!enough()) engine_.keys.work().charge(ring_work(rings.clear()));
  if (!enough()) return nullptr;
  engine_.keys.work().charge(ring_work(size));
  return rings.make(size);
}

/// Reserves the share of a new ring. The old ring has just gone to the pool, which may hold the
/// missing share.
[[gnu::noinline]] void SendRing::reserve_share(Ring& ring) {
  auto share = engine_.rings.budget.reserve(ring.size);
  if (!share) {
    engine_.keys.work().charge(ring_work(engine_.rings.requests.clear()));
    share = engine_.rings.budget.reserve(ring.size);
  }
  ring.share = std::move(*share);
}

/// Returns the ring to the pool, and drops its contents.
void SendRing::give() {
  const auto size = lent_->size;
  entries_ = nullptr;
  size_ = mask_ = 0;
  if (!engine_.rings.requests.give(std::exchange(lent_, nullptr))) {
    engine_.keys.work().charge(ring_work(size));
  }
}

void SendRing::give_back() {
  if (head_ == tail_) drop();
}

void SendRing::drop() {
  if (lent_ == nullptr) return;
  // Ask for a ring of the size that was needed, so that it need not grow next time.
  const auto size = lent_->size;
  const bool too_large = tail_ - begin_ <= size / 2;
  wish_ = static_cast<std::uint16_t>(std::max(kEntriesFirst, too_large ? size / 2 : size));
  give();
  engine_.rings.update();
}

void SendRing::clear() {
  drop();
  head_ = tail_ = 0;
}

}  // namespace softhca::rdma
