// The receive queue of a QP, or its shared one: takes receive requests from the device, and
// completes them. The responder fills them. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/key_cache.h"
#include "rdma/memory_key.h"
#include "rdma/queue_pair.h"
#include "rdma/request_outcome.h"
#include "rdma/work_queues.h"
#include "rdma/work_request.h"
#include "rdma/xrc_srqs.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class ReceiveQueue {
 public:
  ReceiveQueue(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp) {}

  /// The QP goes to RESET. A request that was taken is lost.
  void reset() { taken_ = false; }
  /// The QP's attributes have changed: drops cached key checks.
  void forget() { key_ = {}; }

  /// XRC: the current packet names this SRQ. Null if there is none.
  const XrcSrq* select(XrcSrqn number);
  /// XRC: the SRQ that the last packet named.
  XrcSrqn srqn() const { return srqn_; }
  /// XRC: forgets the request that was taken if its SRQ is gone. True if it was.
  bool forget_lost();

  /// Takes the next request, unless one was taken for this message, or for the packet that a page
  /// fault refused.
  RequestOutcome take();
  /// True if a request was taken and is not yet completed.
  bool has_taken() const { return taken_; }
  const ReceiveRequest& request() const { return request_; }
  /// XRC: the SRQ that the request came from.
  XrcSrqn request_srqn() const { return request_srqn_; }
  /// Bytes that a message in the request may have.
  std::uint64_t room() const { return room_; }
  /// `pd`: that of the current packet.
  KeyUser user(Pd pd) const {
    return {request_.pd.value_or(pd), qp_.qpn(), qp_.attributes().reserved_lkey, true};
  }
  /// Copies [from, from + length) of the frame to the request's memory, from `offset` on.
  Reason store(Pd pd, std::uint64_t offset, const wire::Frame& frame, std::size_t from,
               std::size_t length) const;

  // For a message of one packet. `cookie`: the request's.
  /// Fast path of take(): destination of `bytes` bytes in the next posted request. Null unless that
  /// is one piece of local memory; the request may then have been taken.
  std::byte* take_fast(std::uint32_t bytes, std::uint32_t& cookie);
  /// Fast path of store(): the same for the request that take() has taken, which then ends.
  std::byte* end_fast(Pd pd, std::uint32_t bytes, std::uint32_t& cookie);
  /// Fast path of complete(). `source`: 0, unless the packet has a DETH.
  void complete_fast(const wire::Bth& bth, Qpn source, std::uint32_t cookie, std::uint32_t bytes);
  /// Caches the source of a packet; later packets to complete_fast() have the same.
  void remember_source(const wire::IbPacket& packet);

  /// Fills in the fields of a completion that describe the packet's source.
  void show_source(const wire::IbPacket& packet, ReceiveCompletion& completion) const;
  /// Completes the request that was taken.
  void complete(ReceiveCompletion& completion);
  void complete_with(ReceiveCompletion& completion, std::span<const std::byte> data);
  void fail(WorkStatus status, Reason reason);
  /// Completes at most `quota` posted requests as flushed. Returns their number.
  unsigned flush(unsigned quota);

 private:
  void set_room(std::uint64_t bytes);
  RequestOutcome miss(Fetch fetched);
  void keep(const ReceivePiece& piece);
  std::byte* place_taken(Pd pd, std::uint32_t bytes, std::uint32_t& cookie);
  void end(ReceiveCompletion& completion);

  Engine& engine_;
  QueuePair& qp_;
  bool taken_ = false;
  XrcSrqn srqn_;
  std::uint64_t srq_ = 0;  ///< incarnation of that SRQ
  XrcSrqn request_srqn_;
  std::uint64_t request_srq_ = 0;  ///< incarnation of that SRQ
  ReceiveRequest request_;
  std::uint64_t room_ = 0;
  KeyCache key_;  ///< for messages of one packet
  /// Template of receive completions, with the cached source. The remaining fields are set for each
  /// completion.
  ReceiveCompletion source_{};
};

}  // namespace softhca::rdma
