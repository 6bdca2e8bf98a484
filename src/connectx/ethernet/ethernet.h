// The Ethernet part of the device (PRM 7.5 to 7.11): send and receive queues of the netdev and of
// raw packet QPs, flow steering and RSS.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/queue/work_queue.h"
#include "hca/object_table.h"
#include "rdma/memory_key.h"
#include "spec/connectx/raw_queues.h"
#include "util/budget.h"
#include "util/clock.h"
#include "util/field.h"
#include "util/notes.h"
#include "util/work_budget.h"
#include "wire/frame.h"

namespace softhca::connectx {

class BlueFlame;
class CompletionQueue;
class EthReceiver;
class EthTransmitter;
class EventQueues;
class FlowSteering;
class NetworkPort;
class ReceiveQueue;
class Resources;
class SendQueue;
class SharedDoorbells;
struct Rqt;
struct Tir;
struct Tis;

class Ethernet {
 public:
  struct Parts {
    const Limits& limits;
    Resources& resources;
    EventQueues& event_queues;
    rdma::KeyTable& keys;
    const BlueFlame& blue_flame;
    SharedDoorbells* shared_doorbells = nullptr;  ///< null: all doorbells are messages
    NetworkPort& port;
    util::Notes& notes;
    bool multi_packet_sends = false;  ///< a property of the model
  };

  explicit Ethernet(const Parts& parts);
  ~Ethernet();
  Ethernet(const Ethernet&) = delete;
  Ethernet& operator=(const Ethernet&) = delete;

  /// True if `sqn` is an SQ. QPs and SQs share one number space.
  bool owns(Sqn sqn) const;
  /// True if this SQ exists and uses this doorbell page.
  bool listens(Sqn sqn, UarPage page) const;
  /// True if the SQ's doorbell record shows WQEs that the device has not noted yet.
  bool has_news(Sqn sqn);
  /// Forgets the template, so that the SQ's next WQE takes the slow path. @pre listens() is true
  void forget_template(Sqn sqn);
  /// Called after a change of the fault rules: SQs that one held back go on.
  void follow_fault_rules();
  /// Handles the send doorbell of an SQ (PRM 7.4.4): the next run() executes its WQEs.
  void doorbell(Sqn sqn);
  /// Fast path of handle_frame(): receives the frame if its flow is cached. Cached flows have no
  /// RoCE traffic and go to one TIR. False if the flow is not cached.
  bool handle_frame_fast(const wire::Frame& frame, util::Time now);
  /// Drops cached flows. Call it after a command, which may have changed the paths of frames.
  void invalidate_flows();
  /// Receives a frame from the wire that is not RoCE traffic of a QP: steers it, hashes it, and
  /// writes it to RQs.
  void handle_frame(const wire::Frame& frame, util::Time now);
  /// Call it after a command, which may have created or destroyed transmit tables.
  void look_for_transmit_tables();
  /// True if there are sniffer tables for received frames, or for sent frames. Such frames are
  /// copied to the TIRs that the tables choose (PRM 3.5).
  bool sniffs_received() const;
  bool sniffs_sent() const;
  void sniff_received(const wire::Frame& frame, util::Time now);
  void sniff_sent(const wire::Frame& frame, util::Time now);
  /// Receives a frame that the function has sent to itself, from a TIS of `domain` (PRM 3.4). False
  /// if no TIR accepts it.
  bool handle_loopback(const wire::Frame& frame, TransportDomain domain, util::Time now);
  /// Executes posted WQEs until `work` is spent. Returns when to call again: `now` if WQEs are
  /// left.
  util::Time run(util::Time now, util::WorkBudget& work) {
    const bool idle = ready_.empty() && now < next_flush_ && failed_.empty() && waiting_.empty();
    return idle ? next_flush_ : run_queues(now, work);
  }
  /// Writes CQEs for frames that the fabric has read since the last turn. Call it first in a turn.
  void report_released(util::Time now) {
    if (!waiting_.empty()) report_waiting(now);
  }

  hca::ObjectTable<SendQueue, Sqn>& send_queues() { return *send_queues_; }
  hca::ObjectTable<ReceiveQueue, Rqn>& receive_queues() { return *receive_queues_; }
  hca::ObjectTable<Rqt, Rqtn>& rqts() { return *rqts_; }
  util::Budget& rqt_entries() { return rqt_entries_; }
  hca::ObjectTable<Tir, Tirn>& tirs() { return *tirs_; }
  hca::ObjectTable<Tis, Tisn>& tiss() { return *tiss_; }
  FlowSteering& steering() { return *steering_; }

  /// Destroys objects until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

  /// Call it after MODIFY_SQ, because an SQ in the error state flushes WQEs without a doorbell.
  void schedule(SendQueue& sq);
  /// Call it after MODIFY_RQ, because an RQ in the error state flushes WQEs. RQs have no doorbell,
  /// so it is polled.
  void schedule_flush(ReceiveQueue& rq);

  /// Creates queues in RST. Null if there are too many. `tis`: null for a queue that only executes
  /// NOPs.
  SendQueue* add_sq(util::View<spec::connectx::sq_context> context, WorkQueue wq,
                    CompletionQueue& cq, Tis* tis);
  ReceiveQueue* add_rq(util::View<spec::connectx::rq_context> context, WorkQueue wq,
                       CompletionQueue& cq);

 private:
  util::Time run_queues(util::Time now, util::WorkBudget& work);
  void report_waiting(util::Time now);
  void flush_receive_queues(util::Time now, util::WorkBudget& work);

  Parts parts_;
  util::Budget rqt_entries_;
  // Each object is declared after those that it uses, so that it is destroyed before them.
  std::unique_ptr<hca::ObjectTable<Tis, Tisn>> tiss_;
  std::unique_ptr<hca::ObjectTable<SendQueue, Sqn>> send_queues_;
  std::unique_ptr<hca::ObjectTable<ReceiveQueue, Rqn>> receive_queues_;
  std::unique_ptr<hca::ObjectTable<Rqt, Rqtn>> rqts_;
  std::unique_ptr<hca::ObjectTable<Tir, Tirn>> tirs_;
  std::unique_ptr<FlowSteering> steering_;
  std::unique_ptr<EthTransmitter> transmitter_;
  std::unique_ptr<EthReceiver> receiver_;
  std::vector<Sqn> ready_;         ///< SQs with WQEs, in the order in which they run
  std::vector<Sqn> waiting_;       ///< SQs with completions that await the release of frames
  std::vector<Rqn> failed_;        ///< flushing RQs that frames have moved to the error state
  std::vector<Rqn> flushing_;      ///< RQs that flush, and are polled
  std::size_t next_flushing_ = 0;  ///< index in flushing_ of the next one to check
  util::Time next_flush_ = util::kNever;
};

}  // namespace softhca::connectx
