// The send queue of a QP: fetches requests from the device, and completes them in posting order, in
// success or error. The requester sends them. Internal.
#pragma once

#include <cstdint>

#include "rdma/queue_pair.h"
#include "rdma/send_window.h"
#include "rdma/work_queues.h"

namespace softhca::rdma {

class SendQueue {
 public:
  SendQueue(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp), window_(engine) {}

  /// The requests that are fetched and not complete.
  SendWindow& window() { return window_; }
  const SendWindow& window() const { return window_; }

  // State changes of the QP.
  void reset();
  /// flush() completes the requests that are not answered now.
  void stop();
  /// From SQE back to RTS: fetched requests are flushed in order.
  void restart();

  /// The queue may have requests that were not fetched yet.
  void notice_posted() { all_fetched_ = !qp_.options().has_send_queue; }
  bool all_fetched() const { return all_fetched_; }
  /// True if there may be something to fetch, send or complete.
  bool has_work() const { return !all_fetched_ || !window_.all_sent() || !window_.empty(); }
  /// True if there may be something to fetch or send.
  bool has_more() const { return !window_.all_sent() || !all_fetched_; }
  /// Fetches the next request. False if there is none, or no room for it.
  bool fetch() { return !all_fetched_ && fetch_posted(); }
  /// Fast path of fetch(): for a short datagram to this destination, which needs no entry.
  bool fetch_datagram_fast(std::uint64_t destination, std::uint32_t bytes_max,
                           ShortDatagram& datagram) {
    const auto fetched = qp_.requests().fetch_datagram_fast(destination, bytes_max, datagram);
    if (fetched == Fetch::kNothing) return false;
    all_fetched_ = fetched == Fetch::kLastRequest;
    return true;
  }
  /// Turns such a datagram into a normal request. @pre the window is empty
  void keep(const ShortDatagram& datagram, const UdDestination& to);
  /// IBTA 10.3.1.6: in SQD, requests already begun are finished, and no other is fetched.
  bool is_held_back(std::uint64_t index) const {
    return index >= window_.begun() && qp_.state() == QpState::kSqDrain;
  }

  /// Lets the device execute the request that is next to send. False if more of it remains for the
  /// QP's next turn.
  bool execute_local(SendEntry& entry);
  /// Completes what is done, in order.
  void complete_done();
  /// Fast path of complete_done(): all requests are sent and acknowledged, and none waits for data.
  void complete_done_fast();
  /// True if complete_done() may find something to do.
  bool may_complete() const {
    return !window_.empty() &&
           (window_.oldest().status != WorkStatus::kSuccess || window_.done(window_.oldest()));
  }
  /// Reports the end of a request to the device.
  [[gnu::always_inline]] void complete(const SendEntry& e, WorkStatus status, Reason reason) {
    if (status != WorkStatus::kSuccess) count_failed(status, reason);
    qp_.queues().complete_send({.cookie = e.request.cookie,
                                .opcode = e.request.opcode,
                                .status = status,
                                .signaled = e.request.signaled,
                                .byte_count = e.length,
                                .reason = reason});
  }
  /// Ends the QP's sending for an error of request `index`. flush() then completes the done
  /// requests before it in success, that request with its first error, and all others as flushed.
  void fail(std::uint64_t index, WorkStatus status, Reason reason);
  /// For failures caused by the peer's response, or by its silence.
  void fail_unanswered(WorkStatus status, Reason reason) {
    fail(window_.unanswered(), status, reason);
  }
  /// Completes at most `quota` posted requests as flushed. Returns their number.
  unsigned flush(unsigned quota);
  /// True if the oldest request is done, but the fabric has not read all of its payload.
  bool waits_for_release() const;

  bool drain_reported = false;

 private:
  bool fetch_posted();
  void complete_with_data(SendEntry& entry);
  void count_failed(WorkStatus status, Reason reason);
  void complete_head();
  bool is_released(const SendEntry& entry);

  Engine& engine_;
  QueuePair& qp_;
  SendWindow window_;
  static constexpr std::uint64_t kNoRequest = UINT64_MAX;
  std::uint64_t failed_ = kNoRequest;        ///< the request that completes with its own error
  std::uint64_t flushed_from_ = kNoRequest;  ///< in SQE and ERR: requests before this one are done
  bool all_fetched_ = false;  ///< the send queue was empty, and the doorbell has not rung since
};

}  // namespace softhca::rdma
