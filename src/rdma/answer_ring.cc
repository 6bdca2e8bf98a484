#include "rdma/answer_ring.h"

#include <utility>

#include "rdma/engine.h"

namespace softhca::rdma {

bool AnswerRing::covers(wire::Psn psn) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (at(i).covers(psn)) return true;
  }
  return false;
}

/// Rings start small: most QPs never serve a READ, and most others serve few at a time.
void AnswerRing::grow() {
  auto& rings = engine_.rings.answers;
  const auto size = std::max(kFirst, ring_ == nullptr ? 0 : ring_->size * 2);
  auto* larger = rings.take(size);
  if (larger == nullptr) larger = rings.make(size);
  for (std::size_t i = 0; i != count_; ++i) larger->entries[i] = at(i);
  give();
  ring_ = larger;
}

/// Returns the ring to the pool.
void AnswerRing::give() {
  if (ring_ != nullptr) engine_.rings.answers.give(std::exchange(ring_, nullptr));
  first_ = 0;
}

void AnswerRing::give_back() {
  if (count_ == 0 && engine_.rings.answers.crowded()) give();
}

void AnswerRing::reset() {
  clear();
  give();
  max_ = 0;
}

void AnswerRing::push(const Answer& answer) {
  if (count_ == (ring_ == nullptr ? 0 : ring_->size)) grow();
  at(count_++) = answer;
  repeats_ += answer.repeated;
}

bool AnswerRing::drop_from(wire::Psn psn) {
  const auto before = count_;
  while (count_ != 0 && !at(count_ - 1).next.before(psn)) {
    repeats_ -= at(count_ - 1).repeated;
    --count_;
  }
  return count_ != before;
}

}  // namespace softhca::rdma
