// The tiny HCA: its commands, its doorbells, its port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/port.h"
#include "hca/number_pool.h"
#include "hca/object_table.h"
#include "hca/refusal.h"
#include "rdma/transport.h"
#include "tiny_hca/tiny_qp.h"
#include "util/notes.h"

namespace softhca::tiny {

enum class Status : std::uint8_t { kBadKey, kBadQueue, kTooMany, kInUse, kBadTransition };
using Refusal = hca::Refusal<Status>;
template <class T>
using Result = tl::expected<T, Refusal>;

class TinyHca {
 public:
  static constexpr std::uint32_t kQueuesMax = 16;  ///< limit for QPs, and for CQs
  static constexpr std::uint32_t kKeysMax = 1u << kKeyIndexBits;

  /// A queue of 2^log_count entries from `address` on, in memory that `key` covers.
  struct Queue {
    rdma::MKey key;
    std::uint64_t address = 0;
    unsigned log_count = 0;
  };
  struct NewQp {
    Queue sends;
    Queue receives;  ///< same length as the send queue
    pcie::Iova record = 0;
    Cqn cqn;
  };

  TinyHca(std::string name, pcie::DmaSpace& dma, fabric::Port& port, rdma::Lid lid);

  // Commands. All memory keys and queues belong to one protection domain.

  /// Creates the key of bus addresses [start, start + length) with the rights `access`
  /// (rdma::Access).
  Result<rdma::MKey> create_key(pcie::Iova start, std::uint64_t length, std::uint8_t access);
  Result<void> destroy_key(rdma::MKey key);
  Result<Cqn> create_cq(const Queue& queue);
  Result<void> destroy_cq(Cqn cqn);
  Result<Qpn> create_qp(const NewQp& made);
  /// Moves a QP from RESET to RTS, connected with the QP `remote` of the port `lid`.
  Result<void> connect_qp(Qpn qpn, rdma::Lid lid, Qpn remote);
  Result<void> destroy_qp(Qpn qpn);

  // Doorbells.

  /// Reports new WQEs in a QP's send queue.
  void ring(Qpn qpn);
  /// Reports that software has consumed the entries of a CQ before `counter`.
  void consume(Cqn cqn, std::uint32_t counter);

  void handle_frame(const wire::Frame& frame, util::Time now) {
    transport_.handle_frame(frame, now);
  }
  /// Returns when to call it again.
  util::Time run(util::Time now);

  rdma::Transport& transport() { return transport_; }

 private:
  using KeyIndex = util::Strong<struct KeyIndexTag, std::uint32_t>;

  hca::QueueMemory map(const Queue& queue, std::size_t entry_size);

  util::Notes notes_;
  rdma::KeyTable keys_;
  hca::NumberPool<KeyIndex> key_indexes_{1, kKeysMax - 1};
  std::uint32_t key_variant_ = 0;
  hca::ObjectTable<CompletionQueue, Cqn> cqs_{0, kQueuesMax};
  hca::ObjectTable<QueuePair, Qpn> qps_{2, kQueuesMax};  // numbers 0 and 1 belong to the port
  std::vector<Qpn> failing_;
  rdma::Transport transport_;  // destroyed before the queues that it refers to
};

}  // namespace softhca::tiny
