#include "tiny_hca/tiny_qp.h"

#include <optional>

namespace softhca::tiny {

using rdma::Fetch;
using rdma::SendOpcode;

namespace {

std::optional<SendOpcode> opcode_of(util::View<wqe> entry) {
  switch (Opcode(entry.get(wqe::opcode))) {
    case Opcode::kSend:
      return SendOpcode::kSend;
    case Opcode::kWrite:
      return SendOpcode::kRdmaWrite;
    case Opcode::kRead:
      return SendOpcode::kRdmaRead;
  }
  return std::nullopt;
}

rdma::Sge piece_of(util::View<wqe> entry) {
  return {entry.get(wqe::address), entry.get(wqe::length), rdma::MKey(entry.get(wqe::lkey))};
}

}  // namespace

bool CompletionQueue::write(util::Struct<cqe>& entry) {
  if (ring.full()) return false;
  entry.set(cqe::valid, 1);
  entry.set(cqe::lap, ring.lap());
  return ring.publish(entry.bytes());
}

QueuePair::QueuePair(Qpn number, Parts parts)
    : number_(number),
      parts_(std::move(parts)),
      cq_use_(parts_.cq.users),
      sends_(parts_.log_count, wqe::kLogSize, 0),
      receives_(parts_.log_count, wqe::kLogSize, 1) {}

/// Copies the next WQE of a chain, so that software cannot change it between check and use.
Fetch QueuePair::fetch(hca::WorkChain& chain, hca::QueueMemory& memory, util::Struct<wqe>& entry,
                       std::uint32_t& place) {
  const auto available = chain.available(parts_.record);
  if (!available) return Fetch::kUnreadable;
  if (*available == 0) return Fetch::kNothing;
  place = chain.next();
  if (!chain.read(memory, entry.bytes())) return Fetch::kUnreadable;
  const auto next = entry.get(wqe::next);
  // The link is invalid: no later WQE of this chain can be found.
  if (next >= chain.size()) return Fetch::kUnreadable;
  chain.advance(next);
  return Fetch::kRequest;
}

Fetch QueuePair::fetch_send(rdma::SendRequest& request) {
  util::Struct<wqe> entry;
  const auto fetched = fetch(sends_, parts_.sends, entry, request.cookie);
  if (fetched != Fetch::kRequest) return fetched;
  request.signaled = entry.get(wqe::signaled) != 0;
  const auto opcode = opcode_of(entry);
  if (!opcode) {
    request.fault = rdma::Reason(kUnknownOpcode);
    return Fetch::kMalformed;
  }
  request.opcode = *opcode;
  request.sges.push_back(piece_of(entry));
  request.rkey = rdma::MKey(entry.get(wqe::rkey));
  request.remote_address = entry.get(wqe::remote_address);
  return Fetch::kRequest;
}

Fetch QueuePair::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn) {
  util::Struct<wqe> entry;
  const auto fetched = fetch(receives_, parts_.receives, entry, request.cookie);
  if (fetched == Fetch::kRequest) request.sges.push_back(piece_of(entry));
  return fetched;
}

void QueuePair::complete_send(const rdma::SendCompletion& completion) {
  // Errors always complete, signaled or not.
  if (!completion.signaled && completion.status == rdma::WorkStatus::kSuccess) return;
  util::Struct<cqe> entry;
  entry.set(cqe::byte_count, completion.byte_count);
  complete(entry, completion.status, completion.reason, completion.cookie);
}

void QueuePair::complete_receive(const rdma::ReceiveCompletion& completion) {
  util::Struct<cqe> entry;
  entry.set(cqe::receive, 1);
  entry.set(cqe::byte_count, completion.byte_count);
  complete(entry, completion.status, completion.reason, completion.cookie);
}

void QueuePair::complete(util::Struct<cqe>& entry, rdma::WorkStatus status, rdma::Reason reason,
                         std::uint32_t place) {
  entry.set(cqe::status, static_cast<std::uint32_t>(status));
  entry.set(cqe::reason, static_cast<std::uint32_t>(reason));
  entry.set(cqe::qpn, number_.value());
  entry.set(cqe::place, place);
  // The transport is still working on the QP, so the device fails the QP after this run.
  if (!parts_.cq.write(entry)) parts_.failing.push_back(number_);
}

}  // namespace softhca::tiny
