// Methods of ReceiveQueue on the path of every packet, which need the definition of Engine.
#pragma once

#include "rdma/engine.h"
#include "rdma/receive_queue.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

inline Reason ReceiveQueue::store(Pd pd, std::uint64_t offset, const wire::Frame& frame,
                                  std::size_t from, std::size_t length) const {
  return scatter(engine_.keys, user(pd), request_.sges, offset, frame, from, length);
}

[[gnu::always_inline]] inline std::byte* ReceiveQueue::take_fast(std::uint32_t bytes,
                                                                 std::uint32_t& cookie) {
  ReceivePiece piece;
  if (taken_ || !qp_.requests().fetch_receive_fast(piece)) return nullptr;
  const auto& sge = piece.sge;
  if (bytes <= sge.length) {
    const auto user = [&] {
      return KeyUser{qp_.attributes().pd, qp_.qpn(), qp_.attributes().reserved_lkey, true};
    };
    auto* const to = key_.find(engine_.keys, sge.lkey, user, sge.address, bytes, kLocalWrite);
    cookie = piece.cookie;
    if (to != nullptr) return to;
  }
  keep(piece);
  return nullptr;
}

[[gnu::always_inline]] inline std::byte* ReceiveQueue::end_fast(Pd pd, std::uint32_t bytes,
                                                                std::uint32_t& cookie) {
  auto* const to = place_taken(pd, bytes, cookie);
  if (to != nullptr) taken_ = false;
  return to;
}

[[gnu::always_inline]] inline void ReceiveQueue::complete_fast(const wire::Bth& bth, Qpn source,
                                                               std::uint32_t cookie,
                                                               std::uint32_t bytes) {
  auto& completion = source_;
  completion.cookie = cookie;
  completion.srqn = request_srqn_;
  completion.solicited = bth.solicited_event;
  completion.byte_count = bytes;
  completion.source_qpn = source;
  completion.pkey = bth.pkey;
  qp_.queues().complete_receive(completion);
}

}  // namespace softhca::rdma
