// Requests of one packet, as most are, which come from where the one before came from: what nearly
// all of them pass, asked at once. Whatever is unusual goes the long way of handle_request().

#include <cstring>
#include <span>

#include "rdma/engine.h"
#include "rdma/responder.h"
#include "util/copy_short.h"

namespace softhca::rdma {

using spec::infiniband::kGrhBytes;

/// Whether the packet is the one that is expected next, and nothing is in its way.
[[gnu::always_inline]] inline bool Responder::is_next(const wire::Bth& bth) const {
  return bth.psn == expected_ && qp_.state() == QpState::kRts && message_ == Message::kNone &&
         !fatal_ && reply_type_ == wire::AethType::ACK &&
         qp_.service().packets == wire::Service::RC &&
         spec::infiniband::same_partition(bth.pkey, qp_.attributes().pkey);
}

[[gnu::always_inline]] inline void Responder::pass_next(const wire::Bth& bth) {
  silent_until_ = util::Time::min();
  expected_ = expected_.next();
  if (bth.ack_req) acknowledge_end();
}

bool Responder::take_write(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& [bth, ext] = headers;
  const auto& attributes = qp_.attributes();
  const std::uint32_t size = frame.packet_payload();
  if (!is_next(bth) || !attributes.remote_write || size == 0 || size > attributes.path_mtu ||
      size != ext.reth.dma_length) {
    return false;
  }
  auto* const to = seen_key_.find(engine_.keys, MKey(ext.reth.rkey.value()), user(attributes.pd),
                                  ext.reth.virtual_address, size, kRemoteWrite);
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (to == nullptr || from == nullptr) return false;
  util::copy_short(to, from, size);  // a QP may send to itself
  ++qp_.counters_->rx_write_requests;
  ++msn_;
  pass_next(bth);
  return true;
}

/// complete_receive() of a SEND that has arrived.
[[gnu::always_inline]] inline void Responder::complete_at_once(
    const wire::TransportHeaders& headers, std::uint32_t bytes) {
  ++msn_;
  auto completion = source_;
  completion.cookie = receive_.cookie;
  completion.srqn = receive_srqn_;
  completion.opcode = ReceiveOpcode::kSend;
  completion.status = WorkStatus::kSuccess;
  completion.solicited = headers.bth.solicited_event;
  completion.byte_count = bytes;
  completion.source_qpn = headers.ext.deth.src_qp;
  completion.pkey = headers.bth.pkey;
  has_receive_ = false;
  qp_.queues_.complete_receive(completion);
}

bool Responder::take_send(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& bth = headers.bth;
  const std::uint32_t size = frame.packet_payload();
  if (!is_next(bth) || size <= qp_.options().completion_data.of_sends || size == 0 ||
      size > qp_.attributes().path_mtu) {
    return false;
  }
  pd_ = qp_.attributes().pd;
  if (const auto verdict = take_receive(); !verdict.ok()) {
    silent_until_ = util::Time::min();
    refuse(verdict);
    return true;
  }
  // What was taken is there on the long way, too.
  if (receive_.sges.size() != 1 || size > room_) return false;
  const auto& sge = receive_.sges.front();
  auto* const to =
      receive_key_.find(engine_.keys, sge.lkey, receive_user(), sge.address, size, kLocalWrite);
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (to == nullptr || from == nullptr) return false;
  std::memmove(to, from, size);
  complete_at_once(headers, size);
  pass_next(bth);
  return true;
}

bool Responder::take_read(const wire::TransportHeaders& headers, const wire::Frame& frame) {
  const auto& [bth, ext] = headers;
  const auto& attributes = qp_.attributes();
  const auto size = ext.reth.dma_length;
  if (!is_next(bth) || !attributes.remote_read || size == 0 || size > attributes.path_mtu ||
      frame.packet_payload() != 0 || answers_count_ != 0 || attributes.max_dest_rd_atomic == 0) {
    return false;
  }
  auto* const from = read_key_.find(engine_.keys, MKey(ext.reth.rkey.value()), user(attributes.pd),
                                    ext.reth.virtual_address, size, kRemoteRead);
  const auto* header = engine_.path_header(qp_);
  if (from == nullptr || header == nullptr) return false;
  ++qp_.counters_->rx_read_requests;
  ++msn_;
  silent_until_ = util::Time::min();
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

/// GRH and payload where all of it goes to one piece of local memory, as mostly. False, and nothing
/// is done, if it wants a closer look.
[[gnu::always_inline]] inline bool Responder::scatter_at_once(const wire::IbPacket& like,
                                                              const wire::Frame& frame) {
  const std::size_t size = frame.packet_payload();
  if (receive_.sges.size() != 1 || kGrhBytes + size > room_) return false;
  const auto& sge = receive_.sges.front();
  auto* const to = seen_key_.find(engine_.keys, sge.lkey, receive_user(), sge.address,
                                  kGrhBytes + size, kLocalWrite);
  const auto* const from = frame.one_piece(frame.headers_size(), size);
  if (to == nullptr || from == nullptr) return false;
  (void)wire::emit_ud_grh(frame, like, std::span<std::byte, kGrhBytes>(to, kGrhBytes));
  std::memmove(to + kGrhBytes, from, size);  // a QP may send to itself
  return true;
}

bool Responder::take_datagram(const wire::TransportHeaders& headers, const wire::Frame& frame,
                              const wire::IbPacket& like) {
  const auto& attributes = qp_.attributes();
  if (qp_.state() != QpState::kRts || !qp_.service().datagram || fatal_ ||
      headers.ext.deth.qkey.value() != attributes.qkey ||
      !spec::infiniband::same_partition(headers.bth.pkey, attributes.pkey)) {
    return false;
  }
  pd_ = attributes.pd;
  if (const auto verdict = take_receive(); !verdict.ok()) {
    drop_datagram(verdict);
    return true;
  }
  // What was taken is there on the long way, too.
  if (!scatter_at_once(like, frame)) return false;
  complete_at_once(headers, static_cast<std::uint32_t>(kGrhBytes + frame.packet_payload()));
  return true;
}

}  // namespace softhca::rdma
