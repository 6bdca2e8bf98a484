// Fast paths for single-packet requests from the same source as the one before. They make the
// checks that nearly all requests pass; any other request goes to handle_request().

#include <cstring>
#include <span>

#include "rdma/answers_inl.h"
#include "rdma/receive_queue_inl.h"
#include "rdma/responder.h"
#include "util/copy_short.h"

namespace softhca::rdma {

using spec::infiniband::kGrhBytes;

/// True if the packet is the expected one and nothing blocks it.
[[gnu::always_inline]] inline bool Responder::is_next(const wire::Bth& bth) const {
  return bth.psn == numbers_.expected && qp_.state() == QpState::kRts && !message_.has_begun() &&
         !fatal_ && !waits_for_page() && !answers_.is_nak() &&
         qp_.service().packets == wire::Service::RC && qp_.takes(bth.pkey);
}

[[gnu::always_inline]] inline void Responder::pass_next(const wire::Bth& bth) {
  silent_ = false;
  numbers_.expected = numbers_.expected.next();
  if (bth.ack_req) answers_.acknowledge_end(numbers_);
}

bool Responder::handle_write_fast(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& [bth, ext] = headers;
  const auto& attributes = qp_.attributes();
  const std::uint32_t size = frame.packet_payload();
  if (!is_next(bth) || !attributes.access_flags.remote_write || size == 0 ||
      size > attributes.path_mtu || size > attributes.message_max || size != ext.reth.dma_length) {
    return false;
  }
  auto* const to = key_cache_.find(
      engine_.keys, MKey(ext.reth.rkey.value()), [&] { return message_.peer(attributes.pd); },
      ext.reth.virtual_address, size, kRemoteWrite);
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (to == nullptr || from == nullptr) return false;
  util::copy_short(to, from, size);  // may overlap: a QP may send to itself
  ++qp_.counters().rx_write_requests;
  ++numbers_.msn;
  pass_next(bth);
  return true;
}

bool Responder::handle_send_fast(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& bth = headers.bth;
  const std::uint32_t size = frame.packet_payload();
  if (!is_next(bth) || size <= qp_.options().completion_data.of_sends || size == 0 ||
      size > qp_.attributes().path_mtu || size > qp_.attributes().message_max) {
    return false;
  }
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (from == nullptr) return false;
  auto& receives = message_.receives();
  std::uint32_t cookie;
  auto* to = receives.take_fast(size, cookie);
  if (to == nullptr) {
    if (const auto outcome = receives.take(); !outcome.ok()) {
      silent_ = false;
      refuse(outcome);
      return true;
    }
    // The slow path finds the receive request that was taken here.
    to = receives.end_fast(qp_.attributes().pd, size, cookie);
    if (to == nullptr) return false;
  }
  std::memmove(to, from, size);
  ++numbers_.msn;
  receives.complete_fast(bth, Qpn{}, cookie, size);
  pass_next(bth);
  return true;
}

bool Responder::handle_read_fast(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& [bth, ext] = headers;
  const auto& attributes = qp_.attributes();
  const auto size = ext.reth.dma_length;
  if (!is_next(bth) || !attributes.access_flags.remote_read || size == 0 ||
      size > attributes.path_mtu || size > attributes.message_max || frame.packet_payload() != 0 ||
      !answers_.ring().empty() || attributes.max_dest_rd_atomic == 0) {
    return false;
  }
  auto* const from = read_key_.find(
      engine_.keys, MKey(ext.reth.rkey.value()), [&] { return message_.peer(attributes.pd); },
      ext.reth.virtual_address, size, kRemoteRead);
  const auto* header = engine_.path_header(qp_);
  if (from == nullptr || header == nullptr) return false;
  ++qp_.counters().rx_read_requests;
  ++numbers_.msn;
  silent_ = false;
  numbers_.expected = numbers_.expected.next();
  answers_.send_read(*header, bth.psn, numbers_.msn, {from, size});
  return true;
}

/// The common case: GRH and payload go to one piece of local memory.
bool Responder::handle_datagram_fast(const wire::TransportHeaders& headers,
                                     const wire::Frame& frame, wire::AcceptedHeader& seen) {
  const auto& attributes = qp_.attributes();
  if (qp_.state() != QpState::kRts || !qp_.service().datagram || fatal_ ||
      !qp_.options().datagram_header || headers.ext.deth.qkey.value() != attributes.qkey ||
      !qp_.takes(headers.bth.pkey)) {
    return false;
  }
  const std::uint32_t size = frame.packet_payload();
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (from == nullptr) return false;
  const auto bytes = static_cast<std::uint32_t>(kGrhBytes + size);
  auto& receives = message_.receives();
  std::uint32_t cookie;
  auto* to = receives.take_fast(bytes, cookie);
  if (to == nullptr) {
    if (const auto outcome = receives.take(); !outcome.ok()) {
      datagrams_.drop(outcome);
      return true;
    }
    // The slow path finds the receive request that was taken here.
    to = receives.end_fast(attributes.pd, bytes, cookie);
    if (to == nullptr) return false;
  }
  seen.put_ud_grh(frame, std::span<std::byte, kGrhBytes>(to, kGrhBytes));
  util::copy_header(to + kGrhBytes, from, size);  // a QP may send to itself
  ++numbers_.msn;
  receives.complete_fast(headers.bth, headers.ext.deth.src_qp, cookie, bytes);
  return true;
}

}  // namespace softhca::rdma
