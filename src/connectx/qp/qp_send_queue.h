// The send queue of a QP: fetches the next WQE as a request to execute or to flush.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "connectx/qp/qp_context.h"
#include "connectx/qp/send_wqe_cache.h"
#include "connectx/qp/wqe_reader.h"
#include "connectx/queue/mapped_queue.h"
#include "hca/work_ring.h"
#include "rdma/work_queues.h"

namespace softhca::connectx {

class QpSendQueue {
 public:
  explicit QpSendQueue(const hca::WorkRing& ring) : ring_(ring) {}

  hca::WorkRing& ring() { return ring_; }
  const hca::WorkRing& ring() const { return ring_; }
  bool is_datagram() const { return datagram_template_ != nullptr; }

  /// Takes the rules for WQEs from the QP's context.
  void set_rules(Qpn qpn, const QpContext& context);
  /// Called once, when the transport has created its part of the QP.
  void bind(bool is_datagram, bool atomics);
  /// Forgets the templates, so that the next WQE takes the slow path.
  void forget_templates() {
    template_.forget();
    if (datagram_template_ != nullptr) datagram_template_->forget();
  }
  /// Drops all posted WQEs.
  void reset();

  // The calls of rdma::WorkQueues --------------------------------------------------------------

  /// The next request to execute, or one that was posted in SQE. @pre the QP is not in ERR or SQE
  [[gnu::always_inline]] rdma::Fetch fetch(MappedQueue& queue, WqeReader& reader,
                                           rdma::SendRequest& request);
  /// Fast path of fetch(): as rdma::PostedRequests::fetch_datagram_fast().
  [[gnu::always_inline]] rdma::Fetch fetch_datagram_fast(std::uint64_t destination,
                                                         std::uint32_t bytes_max,
                                                         MappedQueue& queue, WqeReader& reader,
                                                         rdma::ShortDatagram& datagram);
  /// Fetches a WQE to flush. Every posted WQE is flushed, also malformed ones and those without CE
  /// (mlx5 driver interface 8.12). Only the size of the WQE is decoded, to find the next one.
  rdma::Fetch flush(MappedQueue& queue, rdma::SendRequest& request);
  /// If the counter cannot be read or is wrong, the next fetch reports it.
  void restart(hca::DoorbellRecord& record);
  /// True if a failed request has a CQE. PRM Table 26, CE: "Generate CQE only on first WQE
  /// completion with error (i.e if CQE on previous WQE completed in error, no CQE will be
  /// generated)". `cookie`: that of the failed request.
  bool reports_failure(SendCookie cookie);

 private:
  rdma::Fetch fetch_datagram(MappedQueue& queue, WqeReader& reader, std::uint32_t available,
                             rdma::SendRequest& request);
  rdma::Fetch fetch_other(MappedQueue& queue, WqeReader& reader, std::uint32_t available,
                          rdma::SendRequest& request);
  rdma::Fetch flush_stale(MappedQueue& queue, rdma::SendRequest& request);

  hca::WorkRing ring_;
  SendWqeRules rules_;
  SendWqeCache template_;                                ///< of the last WQE
  std::unique_ptr<DatagramWqeCache> datagram_template_;  ///< null unless UD
  /// Basic blocks at the head of the queue that were posted in SQE and must not be executed.
  std::uint32_t stale_blocks_ = 0;
  /// True if the last completed WQE ended in error.
  bool has_reported_error_ = false;
};

inline rdma::Fetch QpSendQueue::fetch(MappedQueue& queue, WqeReader& reader,
                                      rdma::SendRequest& request) {
  using rdma::Fetch;
  if (stale_blocks_ != 0) return flush_stale(queue, request);
  if (!ring_.look(queue.record)) return Fetch::kUnreadable;
  const auto available = ring_.known();
  if (available == 0) return Fetch::kNothing;
  if (!template_.is_set()) return fetch_datagram(queue, reader, available, request);
  if (const auto* at = ring_.at_next(queue.memory, kWqeBasicBlock)) {
    const auto block = reader.room().first<kWqeBasicBlock>();
    std::memcpy(block.data(), at, kWqeBasicBlock);
    if (template_.decode_fast(block, ring_.consumed(), request)) {
      ring_.consume(1);
      return available == 1 ? Fetch::kLastRequest : Fetch::kRequest;
    }
    request.sges.clear();
  }
  return fetch_other(queue, reader, available, request);
}

inline rdma::Fetch QpSendQueue::fetch_datagram_fast(std::uint64_t destination,
                                                    std::uint32_t bytes_max, MappedQueue& queue,
                                                    WqeReader& reader,
                                                    rdma::ShortDatagram& datagram) {
  using rdma::Fetch;
  const auto& seen = *datagram_template_;
  if (seen.destination() != destination || stale_blocks_ != 0 || !ring_.look(queue.record)) {
    return Fetch::kNothing;
  }
  const auto available = ring_.known();
  if (seen.basic_blocks() > available) return Fetch::kNothing;
  const auto* at = ring_.entries_at_next(queue.memory, seen.size());
  if (at == nullptr) at = reader.read_datagram(ring_, queue.memory, seen.size());
  if (at == nullptr || !seen.decode_fast(at, ring_.consumed(), datagram) ||
      datagram.length > bytes_max) {
    return Fetch::kNothing;
  }
  ring_.consume(seen.basic_blocks());
  return seen.basic_blocks() == available ? Fetch::kLastRequest : Fetch::kRequest;
}

}  // namespace softhca::connectx
