#include "rdma/qp_table.h"

#include <cassert>
#include <utility>

namespace softhca::rdma {

QueuePair& QpTable::insert(std::unique_ptr<QueuePair> qp) {
  const auto number = qp->qpn().value();
  const auto chunk = number / kChunk;
  if (chunk >= chunks_.size()) chunks_.resize(chunk + 1);
  if (chunks_[chunk] == nullptr) chunks_[chunk] = std::make_unique<Chunk>();
  auto& place = (*chunks_[chunk])[number % kChunk];
  assert(place == nullptr && "the device hands out each QPN once");
  place = std::move(qp);
  return *place;
}

void QpTable::erase(Qpn qpn) {
  assert(find(qpn) != nullptr);
  (*chunks_[qpn.value() / kChunk])[qpn.value() % kChunk] = nullptr;
}

std::vector<QueuePair*> QpTable::all() const {
  std::vector<QueuePair*> found;
  for (const auto& chunk : chunks_) {
    if (chunk == nullptr) continue;
    for (const auto& qp : *chunk) {
      if (qp != nullptr) found.push_back(qp.get());
    }
  }
  return found;
}

}  // namespace softhca::rdma
