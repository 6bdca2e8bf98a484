// Methods of Requester on the path of every packet, which need the definition of Engine.
#pragma once

#include "rdma/engine.h"
#include "rdma/requester.h"
#include "util/copy_short.h"

namespace softhca::rdma {

inline void Requester::arm_ack_timer() {
  if (qp_.timers_[Timer::kAck] != util::kNever || retries_.timeout() == util::Duration{}) return;
  engine_.timers.arm(qp_, Timer::kAck, engine_.now + retries_.timeout());
}

/// Fast path for payload in one piece of memory, behind the same key as the request before. False,
/// with no effect, in any other case.
[[gnu::always_inline]] inline bool Requester::refer_to_piece(const SendEntry& e,
                                                             wire::Frame& frame) {
  const auto& request = e.request;
  if (request.is_inline || request.sges.size() != 1 || !request.inline_data.empty() ||
      e.length == 0) {
    return false;
  }
  const auto& piece = request.sges.front();
  auto* const host = seen_key_.find(
      engine_.keys, piece.lkey, [&] { return user(); }, piece.address, e.length, kLocalRead);
  return host != nullptr && frame.add_segment({host, e.length});
}

/// Destination of a READ, if that is one piece of memory behind the same key as the READ before;
/// else null.
[[gnu::always_inline]] inline std::byte* Requester::read_target(const SendEntry& e) {
  const auto& sges = e.request.sges;
  if (sges.size() != 1 || e.length == 0) return nullptr;
  const auto& piece = sges.front();
  return read_key_.find(
      engine_.keys, piece.lkey, [&] { return user(); }, piece.address, e.length, kLocalWrite);
}

/// Adds the payload of a single-packet message. False if that failed and the request was refused.
[[gnu::always_inline]] inline bool Requester::add_only_payload(SendEntry& e, wire::Frame& frame) {
  const auto& request = e.request;
  if (request.is_inline && frame.head_size() + e.length <= wire::Frame::kHeadCapacity) {
    // Copied: the entry may serve another request before the frame is delivered.
    util::copy_short(frame.extend_head(e.length).data(), request.inline_data.data(), e.length);
    return true;
  }
  return refer_to_piece(e, frame) || (check_payload(e) && add_payload(e, 0, e.length, frame));
}

}  // namespace softhca::rdma
