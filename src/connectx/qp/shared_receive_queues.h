// All RMPs and SRQs of the device, with the events that they post.
#pragma once

#include <cstdint>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/base/resources.h"
#include "connectx/event/event_queue.h"
#include "connectx/qp/shared_receive_queue.h"
#include "hca/object_table.h"
#include "rdma/xrc_srqs.h"
#include "util/notes.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class SharedReceiveQueues {
 public:
  /// Takes the queues' numbers from `resources`. Adds the queues that serve XRC to `xrc_srqs`.
  SharedReceiveQueues(const Limits& limits, Resources& resources, rdma::XrcSrqs& xrc_srqs,
                      EventQueues& event_queues, util::Notes& notes);

  /// Null if there are too many of its kind.
  SharedReceiveQueue* add(SharedReceiveQueue::Attributes attributes);
  void remove(SharedReceiveQueue& srq);
  /// Null if there is no such RMP or SRQ.
  SharedReceiveQueue* find(Srqn number) { return queues_.find(number); }
  const hca::ObjectTable<SharedReceiveQueue, Srqn>& all() const { return queues_; }
  /// Destroys queues until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

  /// Arms the limit event. If fewer than `limit` WQEs are posted, posts it immediately.
  void arm(SharedReceiveQueue& srq, std::uint16_t limit);
  /// Fetches the next WQE of the queue, and posts the events that follow from it. Fails if there is
  /// no such queue.
  rdma::Fetch fetch(Srqn number, rdma::ReceiveRequest& request);

 private:
  void post_events(SharedReceiveQueue& srq);

  const Limits& limits_;
  rdma::XrcSrqs& xrc_srqs_;
  EventQueues& event_queues_;
  util::Notes& notes_;
  hca::ObjectTable<SharedReceiveQueue, Srqn> queues_;
  std::uint32_t rmps_ = 0;  ///< RMPs in queues_
  std::uint32_t srqs_ = 0;  ///< all others in queues_
};

}  // namespace softhca::connectx
