// The QPs of a port.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "rdma/queue_pair.h"

namespace softhca::rdma {

/// QPs by number: two levels of arrays, since numbers have 24 bits and are usually dense.
class QpTable {
 public:
  static constexpr std::uint32_t kChunk = 4096;

  QueuePair* find(Qpn qpn) const {
    const auto chunk = qpn.value() / kChunk;
    if (chunk >= chunks_.size() || chunks_[chunk] == nullptr) return nullptr;
    return (*chunks_[chunk])[qpn.value() % kChunk].get();
  }
  QueuePair& insert(std::unique_ptr<QueuePair> qp);
  void erase(Qpn qpn);
  std::vector<QueuePair*> all() const;

 private:
  using Chunk = std::array<std::unique_ptr<QueuePair>, kChunk>;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace softhca::rdma
