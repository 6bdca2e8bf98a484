// Fast paths for single-packet requests from the same source as the one before. They make the
// checks that nearly all requests pass; any other request goes to handle_request().

#include <cstring>
#include <span>

#include "rdma/receive_queue_inl.h"
#include "rdma/responder.h"
#include "util/copy_short.h"

namespace softhca::rdma {

using spec::infiniband::kGrhBytes;

/// True if the packet is the expected one and nothing blocks it.
[[gnu::always_inline]] inline bool Responder::is_next(const wire::Bth& bth) const {
  return bth.psn == expected_ && qp_.state() == QpState::kRts && message_ == Message::kNone &&
         !fatal_ && !waits_for_page() && reply_type_ == wire::AethType::ACK &&
         qp_.service().packets == wire::Service::RC && qp_.takes(bth.pkey);
}

[[gnu::always_inline]] inline void Responder::pass_next(const wire::Bth& bth) {
  silent_ = false;
  expected_ = expected_.next();
  if (bth.ack_req) acknowledge_end();
}

bool Responder::take_write(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& [bth, ext] = headers;
  const auto& attributes = qp_.attributes();
  const std::uint32_t size = frame.packet_payload();
  if (!is_next(bth) || !attributes.remote_write || size == 0 || size > attributes.path_mtu ||
      size > attributes.message_max || size != ext.reth.dma_length) {
    return false;
  }
  auto* const to = seen_key_.find(
      engine_.keys, MKey(ext.reth.rkey.value()), [&] { return user(attributes.pd); },
      ext.reth.virtual_address, size, kRemoteWrite);
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (to == nullptr || from == nullptr) return false;
  util::copy_short(to, from, size);  // may overlap: a QP may send to itself
  ++qp_.counters_->rx_write_requests;
  ++msn_;
  pass_next(bth);
  return true;
}

bool Responder::take_send(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& bth = headers.bth;
  const std::uint32_t size = frame.packet_payload();
  if (!is_next(bth) || size <= qp_.options().completion_data.of_sends || size == 0 ||
      size > qp_.attributes().path_mtu || size > qp_.attributes().message_max) {
    return false;
  }
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (from == nullptr) return false;
  std::uint32_t cookie;
  auto* to = receives_.take_piece(size, cookie);
  if (to == nullptr) {
    pd_ = qp_.attributes().pd;
    if (const auto verdict = receives_.take(); !verdict.ok()) {
      silent_ = false;
      refuse(verdict);
      return true;
    }
    // The slow path finds the receive request that was taken here.
    to = receives_.end_taken(pd_, size, cookie);
    if (to == nullptr) return false;
  }
  std::memmove(to, from, size);
  ++msn_;
  receives_.complete_piece(bth, Qpn{}, cookie, size);
  pass_next(bth);
  return true;
}

bool Responder::take_read(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& [bth, ext] = headers;
  const auto& attributes = qp_.attributes();
  const auto size = ext.reth.dma_length;
  if (!is_next(bth) || !attributes.remote_read || size == 0 || size > attributes.path_mtu ||
      size > attributes.message_max || frame.packet_payload() != 0 || !answers_.empty() ||
      attributes.max_dest_rd_atomic == 0) {
    return false;
  }
  auto* const from = read_key_.find(
      engine_.keys, MKey(ext.reth.rkey.value()), [&] { return user(attributes.pd); },
      ext.reth.virtual_address, size, kRemoteRead);
  const auto* header = engine_.path_header(qp_);
  if (from == nullptr || header == nullptr) return false;
  ++qp_.counters_->rx_read_requests;
  ++msn_;
  silent_ = false;
  expected_ = expected_.next();
  reply_due_ = false;  // IBTA 9.7.5.1: a response acknowledges all requests before it
  const auto form = wire::IbHeader::form(wire::Opcode::RC_RDMA_READ_RESPONSE_ONLY);
  auto& answer = engine_.new_frame();
  auto& response = header->begin(form, size, answer);
  fill(response.bth, bth.psn);
  response.ext.aeth = wire::Aeth::ack(msn_);
  (void)answer.add_segment({from, size});
  engine_.transmit(answer);
  charge_answer(size);
  return true;
}

/// The common case: GRH and payload go to one piece of local memory.
bool Responder::take_datagram(const wire::TransportHeaders& headers, const wire::Frame& frame,
                              wire::SeenHeader& seen) {
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
  std::uint32_t cookie;
  auto* to = receives_.take_piece(bytes, cookie);
  if (to == nullptr) {
    pd_ = attributes.pd;
    if (const auto verdict = receives_.take(); !verdict.ok()) {
      drop_datagram(verdict);
      return true;
    }
    // The slow path finds the receive request that was taken here.
    to = receives_.end_taken(pd_, bytes, cookie);
    if (to == nullptr) return false;
  }
  seen.put_ud_grh(frame, std::span<std::byte, kGrhBytes>(to, kGrhBytes));
  util::copy_header(to + kGrhBytes, from, size);  // a QP may send to itself
  ++msn_;
  receives_.complete_piece(headers.bth, headers.ext.deth.src_qp, cookie, bytes);
  return true;
}

}  // namespace softhca::rdma
