// Polls receive queues of QPs in ERR, whose receives are flushed. Software posts a receive in
// memory only and rings no doorbell.
#pragma once

#include <cstddef>
#include <vector>

#include "rdma/memory_key.h"
#include "rdma/transport.h"
#include "util/clock.h"
#include "util/work_budget.h"

namespace softhca::jingzhao {

class QueuePair;

class FlushPoller {
 public:
  FlushPoller(rdma::Transport& transport, rdma::KeyTable& keys)
      : transport_(transport), keys_(keys) {}

  /// Adds a QP, and polls all QPs at the shortest interval again. poll() is due immediately.
  void watch(QueuePair& qp);
  /// No effect on a QP that is not watched.
  void unwatch(QueuePair& qp);
  /// Reports posted receives to the transport until `work` is spent. Returns when it is due again.
  util::Time poll(util::Time now, util::WorkBudget& work);

 private:
  rdma::Transport& transport_;
  rdma::KeyTable& keys_;
  std::vector<QueuePair*> watched_;
  std::size_t next_watched_ = 0;  ///< index of the QP that poll() checks next
  util::Duration interval_{};
};

}  // namespace softhca::jingzhao
