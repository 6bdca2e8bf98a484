#include "rdma/reads_and_atomics.h"

#include "rdma/atomic_operation.h"
#include "rdma/engine.h"

namespace softhca::rdma {
namespace {

Answer answer_to_read(const wire::IbPacket& packet, std::uint32_t mtu, Pd pd, wire::Msn msn) {
  const auto& reth = packet.ext.reth;
  return {.next = packet.bth.psn,
          .left = read_packets(reth.dma_length, mtu),
          .msn = msn,
          .pd = pd,
          .rkey = MKey(reth.rkey.value()),
          .address = reth.virtual_address,
          .length = reth.dma_length};
}

Answer answer_to_atomic(const wire::IbPacket& packet, std::uint64_t original, wire::Msn msn) {
  return {.next = packet.bth.psn,
          .left = 1,
          .atomic = true,
          .msn = msn,
          .pd = {},
          .rkey = {},
          .original = original};
}

}  // namespace

RequestOutcome ReadsAndAtomics::execute_read(const wire::IbPacket& packet, const KeyUser& peer,
                                             ResponderNumbers& numbers, Answers& answers) {
  using enum RequestOutcome::Kind;
  const auto& reth = packet.ext.reth;
  if (!qp_.attributes().access_flags.remote_read) return {kInvalid, Reason::kReadForbidden};
  if (reth.dma_length > qp_.attributes().message_max) return {kInvalid, Reason::kReadTooLong};
  if (reth.dma_length != 0) {
    const auto found = engine_.keys.check(MKey(reth.rkey.value()), peer, reth.virtual_address,
                                          reth.dma_length, kRemoteRead);
    if (!found) {
      return fault_.hold({.kind = PageFaultKind::kRemoteRead,
                          .packet_length = std::min(reth.dma_length, qp_.attributes().path_mtu),
                          .rkey = MKey(reth.rkey.value()),
                          .address = reth.virtual_address,
                          .length = reth.dma_length},
                         {kAccess, found.reason});
    }
  }
  ++qp_.counters().rx_read_requests;
  ++numbers.msn;
  answers.push(answer_to_read(packet, qp_.attributes().path_mtu, peer.pd, numbers.msn));
  return {};
}

RequestOutcome ReadsAndAtomics::execute_atomic(const wire::IbPacket& packet,
                                               const wire::Frame& frame, const KeyUser& peer,
                                               ResponderNumbers& numbers, Answers& answers) {
  using enum RequestOutcome::Kind;
  const auto& eth = packet.ext.atomic;
  const AtomicOperation atomic(packet, frame);
  if (!qp_.attributes().access_flags.remote_atomic) return {kInvalid, Reason::kAtomicForbidden};
  if (atomic.is_masked()) {
    if (atomic.size() != 4 && atomic.size() != 8) return {kInvalid, Reason::kAtomicUnaligned};
    if ((atomic.size() & qp_.attributes().access_flags.masked_atomic_sizes) == 0) {
      return {kInvalid, Reason::kAtomicForbidden};
    }
  }
  const auto size = atomic.size();
  if (eth.virtual_address % size != 0) return {kInvalid, Reason::kAtomicUnaligned};
  const auto found =
      engine_.keys.check(MKey(eth.rkey.value()), peer, eth.virtual_address, size, kRemoteAtomic);
  const PageFault fault{.kind = PageFaultKind::kRemoteWrite,
                        .packet_length = size,
                        .rkey = MKey(eth.rkey.value()),
                        .address = eth.virtual_address,
                        .length = size};
  if (!found) return fault_.hold(fault, {kAccess, found.reason});
  std::uint64_t original = 0;
  if (!atomic.carry_out(engine_.keys, *found.key, eth.virtual_address, original)) {
    return fault_.hold(fault, RequestOutcome::of_memory(engine_.keys.fault()));
  }
  ++qp_.counters().rx_atomic_requests;
  ++numbers.msn;
  results_.grow(std::max(1u, qp_.attributes().max_dest_rd_atomic));
  results_.remember(packet.bth.psn, original);
  answers.push(answer_to_atomic(packet, original, numbers.msn));
  return {};
}

// Duplicates -------------------------------------------------------------------------------------

void ReadsAndAtomics::push_repeated(Answer answer, Answers& answers) {
  // Leave room for first-time requests.
  if (!answers.ring().may_repeat(qp_.attributes().max_dest_rd_atomic)) {
    return engine_.drop(&qp_, Drop::kResources, Reason::kTooManyDuplicates);
  }
  answer.repeated = true;
  answers.push(answer);
}

bool ReadsAndAtomics::may_repeat_read(const wire::IbPacket& packet,
                                      const ResponderNumbers& numbers) const {
  const auto& reth = packet.ext.reth;
  const auto packets = read_packets(reth.dma_length, qp_.attributes().path_mtu);
  return reth.dma_length <= qp_.attributes().message_max &&
         packet.bth.psn + packets - numbers.expected <= 0 &&
         qp_.attributes().access_flags.remote_read;
}

void ReadsAndAtomics::repeat_read(const wire::IbPacket& packet, const KeyUser& peer,
                                  const ResponderNumbers& numbers, Answers& answers) {
  const auto& reth = packet.ext.reth;
  if (reth.dma_length != 0) {
    // The key may be gone by now: a late copy of a packet must not fail the QP.
    const auto found = engine_.keys.check(MKey(reth.rkey.value()), peer, reth.virtual_address,
                                          reth.dma_length, kRemoteRead);
    if (!found && found.reason != Reason::kPageAbsent) {
      return engine_.drop(&qp_, Drop::kSequence, found.reason);
    }
  }
  if (!answers.go_back(packet.bth.psn)) return;
  push_repeated(answer_to_read(packet, qp_.attributes().path_mtu, peer.pd, numbers.msn), answers);
}

void ReadsAndAtomics::repeat_atomic(const wire::IbPacket& packet, const ResponderNumbers& numbers,
                                    Answers& answers) {
  const auto* original = results_.find(packet.bth.psn);
  if (original == nullptr) {
    return engine_.drop(&qp_, Drop::kSequence, Reason::kRepeatedAtomicTooOld);
  }
  if (!answers.go_back(packet.bth.psn)) return;
  push_repeated(answer_to_atomic(packet, *original, numbers.msn), answers);
}

}  // namespace softhca::rdma
