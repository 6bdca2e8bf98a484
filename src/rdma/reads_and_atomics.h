// The READs and atomics of a reliable peer: requests that are answered with data (IBTA 9.7.4,
// 9.7.5). Internal.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rdma/answers.h"
#include "rdma/atomic_results.h"
#include "rdma/queue_pair.h"
#include "rdma/request_outcome.h"
#include "rdma/responder_fault.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

/// Packets of a READ response of `length` bytes.
inline std::uint32_t read_packets(std::uint64_t length, std::uint64_t mtu) {
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>((length + mtu - 1) / mtu));
}

/// Functions queue the answer in `answers`. `peer`: the user of the request's R_Key.
class ReadsAndAtomics {
 public:
  ReadsAndAtomics(Engine& engine, QueuePair& qp, ResponderFault& fault)
      : engine_(engine), qp_(qp), fault_(fault) {}

  /// The QP goes to RESET.
  void reset() { results_ = {}; }
  /// A connection begins: duplicates of earlier atomics are unknown.
  void start() { results_.clear(); }

  RequestOutcome execute_read(const wire::IbPacket& packet, const KeyUser& peer,
                              ResponderNumbers& numbers, Answers& answers);
  RequestOutcome execute_atomic(const wire::IbPacket& packet, const wire::Frame& frame,
                                const KeyUser& peer, ResponderNumbers& numbers, Answers& answers);
  /// True if a duplicate READ lies before the expected PSN, and the QP allows it.
  bool may_repeat_read(const wire::IbPacket& packet, const ResponderNumbers& numbers) const;
  /// @pre may_repeat_read()
  void repeat_read(const wire::IbPacket& packet, const KeyUser& peer,
                   const ResponderNumbers& numbers, Answers& answers);
  void repeat_atomic(const wire::IbPacket& packet, const ResponderNumbers& numbers,
                     Answers& answers);

 private:
  void push_repeated(Answer answer, Answers& answers);

  Engine& engine_;
  QueuePair& qp_;
  ResponderFault& fault_;
  AtomicResults results_;  ///< for duplicates
};

}  // namespace softhca::rdma
