#include "rdma/receive_queue.h"

#include <algorithm>

#include "rdma/engine.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

const XrcSrq* ReceiveQueue::select(XrcSrqn number) {
  srqn_ = number;
  const auto* srq = engine_.xrc_srqs.find(number);
  if (srq != nullptr) srq_ = srq->incarnation;
  return srq;
}

void ReceiveQueue::remember_source(const wire::IbPacket& packet) {
  source_ = {};
  source_.opcode = ReceiveOpcode::kSend;
  source_.status = WorkStatus::kSuccess;
  show_source(packet, source_);
}

/// A shared receive queue may be destroyed after a request was taken from it. Each QP detects this
/// itself, as there may be very many QPs.
bool ReceiveQueue::forget_lost() {
  if (!qp_.service().names_srq || !taken_) return false;
  const auto* srq = engine_.xrc_srqs.find(request_srqn_);
  if (srq != nullptr && srq->incarnation == request_srq_) return false;
  taken_ = false;
  return true;
}

/// An XRC requester repeats a packet that a page fault refused with the same SRQ.
RequestOutcome ReceiveQueue::take() {
  if (taken_) {
    const bool of_srq = !qp_.service().names_srq || request_srqn_ == srqn_;
    return of_srq ? RequestOutcome{}
                  : RequestOutcome{RequestOutcome::Kind::kInvalid, Reason::kXrcSrqChanged};
  }
  const auto& options = qp_.options();
  if (!options.has_receive_queue && !options.uses_srq && !qp_.service().names_srq) {
    return {RequestOutcome::Kind::kInvalid, Reason::kNoReceiveQueue};
  }
  request_.reset();
  request_srqn_ = srqn_;
  request_srq_ = srq_;
  const auto fetched = qp_.requests().fetch_receive(request_, srqn_);
  if (fetched != Fetch::kRequest && fetched != Fetch::kLastRequest) return miss(fetched);
  taken_ = true;
  set_room(request_.sges.size() == 1 ? request_.sges.front().length : total_length(request_.sges));
  return {};
}

/// `bytes`: those of the receive request. A message may not be longer than the QP's bound either
/// (IBTA 11.6.2, Local Length Error); a datagram has one packet.
void ReceiveQueue::set_room(std::uint64_t bytes) {
  room_ = qp_.service().datagram ? bytes : std::min(bytes, qp_.attributes().message_max);
}

/// No receive request could be taken.
[[gnu::noinline]] RequestOutcome ReceiveQueue::miss(Fetch fetched) {
  using enum RequestOutcome::Kind;
  switch (fetched) {
    case Fetch::kNothing:
      ++qp_.counters().out_of_buffer;
      return {kNotReady, Reason::kNothingPosted};
    case Fetch::kUnreadable:
      engine_.event(qp_, QpEvent::kCatastrophic, Reason::kReceiveQueueUnreachable);
      return {kOperation, Reason::kReceiveQueueUnreachable, true};
    default:
      break;
  }
  taken_ = true;
  fail(WorkStatus::kLocalQpOperation,
       request_.fault != Reason::kNone ? request_.fault : Reason::kMalformedReceive);
  return {kOperation, Reason::kMalformedReceive, true};
}

void ReceiveQueue::show_source(const wire::IbPacket& packet, ReceiveCompletion& completion) const {
  const auto& address = packet.address;
  completion.pkey = packet.bth.pkey;
  completion.network = wire::network_header(address);
  completion.vlan_tci = address.vlan_tci;
  completion.source_lid = address.source_lid;
  completion.service_level = address.service_level;
  completion.path_bits = engine_.addresses.path_bits(address);
}

inline void ReceiveQueue::end(ReceiveCompletion& completion) {
  completion.cookie = request_.cookie;
  completion.srqn = request_srqn_;
  taken_ = false;
  if (completion.status == WorkStatus::kFlushed) {
    ++qp_.counters().resp_cqe_flush_error;
  } else if (completion.status != WorkStatus::kSuccess) {
    ++qp_.counters().resp_cqe_error;
    engine_.note(qp_, to_string(completion.status), completion.reason);
  }
}

void ReceiveQueue::complete(ReceiveCompletion& completion) {
  end(completion);
  qp_.queues().complete_receive(completion);
}

void ReceiveQueue::complete_with(ReceiveCompletion& completion, std::span<const std::byte> data) {
  end(completion);
  qp_.queues().complete_receive_with(completion, data);
}

void ReceiveQueue::fail(WorkStatus status, Reason reason) {
  ReceiveCompletion completion{};
  completion.status = status;
  completion.reason = reason;
  complete(completion);
}

/// Destination of a message of `bytes` bytes in the request already taken, and its cookie.
/// Null unless it is one piece of local memory.
[[gnu::noinline]] std::byte* ReceiveQueue::place_taken(Pd pd, std::uint32_t bytes,
                                                       std::uint32_t& cookie) {
  if (request_.sges.size() != 1 || bytes > room_) return nullptr;
  const auto& sge = request_.sges.front();
  cookie = request_.cookie;
  return key_.find(
      engine_.keys, sge.lkey, [&] { return user(pd); }, sge.address, bytes, kLocalWrite);
}

/// Keeps a fetched receive request, as take() does.
[[gnu::noinline]] void ReceiveQueue::keep(const ReceivePiece& piece) {
  request_.reset();
  request_.cookie = piece.cookie;
  request_.sges.push_back(piece.sge);
  request_srqn_ = srqn_;
  request_srq_ = srq_;
  taken_ = true;
  set_room(piece.sge.length);
}

unsigned ReceiveQueue::flush(unsigned quota) {
  unsigned used = 0;
  for (; used < quota; ++used) {
    if (!taken_) {
      // Requests in a shared receive queue belong to other QPs too.
      if (!qp_.options().has_receive_queue || qp_.options().uses_srq) return used;
      request_.reset();
      const auto fetched = qp_.requests().fetch_receive(request_, {});
      if (fetched == Fetch::kNothing || fetched == Fetch::kUnreadable) return used;
    }
    fail(WorkStatus::kFlushed, Reason::kFlushed);
  }
  return used;
}

}  // namespace softhca::rdma
