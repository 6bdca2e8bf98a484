// QpList's methods, which need the definition of QueuePair.
#pragma once

#include "rdma/queue_pair.h"

namespace softhca::rdma {

inline QpLink& QpList::link(QueuePair& qp) const {
  return qp.links_[static_cast<std::size_t>(queue_)];
}

inline void QpList::push_back(QueuePair& qp) {
  auto& own = link(qp);
  if (own.queued) return;
  own = {.next = nullptr, .previous = last_, .queued = true};
  (last_ != nullptr ? link(*last_).next : first_) = &qp;
  last_ = &qp;
}

inline QueuePair* QpList::pop_front() {
  auto* const qp = first_;
  if (qp == nullptr) return nullptr;
  auto& own = link(*qp);
  first_ = own.next;
  (first_ != nullptr ? link(*first_).previous : last_) = nullptr;
  own = {};
  return qp;
}

inline void QpList::remove(QueuePair& qp) {
  auto& own = link(qp);
  if (!own.queued) return;
  (own.previous != nullptr ? link(*own.previous).next : first_) = own.next;
  (own.next != nullptr ? link(*own.next).previous : last_) = own.previous;
  own = {};
}

}  // namespace softhca::rdma
