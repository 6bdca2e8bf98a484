// How often a requester may still repeat what its peer does not answer (IBTA 9.7.5, 9.7.6).
// Internal.
#pragma once

#include <cstdint>

#include "rdma/queue_pair.h"
#include "util/clock.h"

namespace softhca::rdma {

class Retries {
 public:
  /// The peer has answered, so all retries are left again.
  void refresh(const QpAttributes& attributes) {
    left_ = attributes.retry_count;
    rnr_left_ = attributes.rnr_retry;
  }
  /// The peer has the request but no receive for it, so losses are counted from here.
  void refresh_losses(const QpAttributes& attributes);
  std::uint8_t left() const { return left_; }
  std::uint8_t rnr_left() const { return rnr_left_; }
  /// False if no retry is left.
  bool use();
  /// The same for a retry after an RNR NAK.
  bool use_rnr(const QpAttributes& attributes);

  /// Sets the Local ACK Timeout to that of the attributes, `least` or more.
  void set_timeout(const QpAttributes& attributes, util::Duration least);
  /// IBTA 9.7.6.1.3; 0: never.
  util::Duration timeout() const { return timeout_; }
  /// False if the timeout that has just expired costs no retry: only one in `patience` does.
  bool counts_timeout(unsigned patience);
  /// False if an implied NAK has already triggered a retry at this PSN: a further retransmission
  /// would only repeat the one in progress.
  bool begin_implied(std::uint64_t psn);
  /// The next implied NAK triggers a retry.
  void forget_implied() { implied_at_ = UINT64_MAX; }

 private:
  util::Duration timeout_{};
  std::uint64_t implied_at_ = UINT64_MAX;  ///< PSN at which an implied NAK last triggered a retry
  unsigned waits_ = 0;                     ///< timeouts since the last one that counted as a retry
  std::uint8_t left_ = 0;
  std::uint8_t rnr_left_ = 0;
};

}  // namespace softhca::rdma
