// The Ethernet part of the device (PRM 7.5 to 7.11): send queues of the netdev and of raw packet
// QPs, flow steering, RSS and receive queues.
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
  /// Whether this SQ uses this doorbell page.
  bool listens(Sqn sqn, UarPage page) const;
  /// Whether WQEs are posted to this SQ that the device has not read about yet.
  bool has_news(Sqn sqn);
  /// The next WQE of the SQ takes the slow path. @pre listens() is true for it
  void forget_seen(Sqn sqn);
  /// The send doorbell of an SQ was rung (PRM 7.4.4): the next run() executes its WQEs.
  void doorbell(Sqn sqn);
  /// Fast path: receives the frame if its flow was cached since the last forget_flows(). Cached
  /// flows have no RoCE traffic and go to one TIR. False if the flow is not cached.
  bool handle_known(const wire::Frame& frame, util::Time now);
  /// Call it after a command: frames may take other paths now.
  void forget_flows();
  /// Receives a frame from the wire that is not RoCE traffic of a QP: steers, hashes and writes it
  /// to RQs.
  void handle_frame(const wire::Frame& frame, util::Time now);
  /// Call it after a command: transmit tables may now decide what is sent, or no longer do so.
  void look_for_transmit_tables();
  /// If there are sniffer tables, received and sent frames are copied to the TIRs that they choose
  /// (PRM 3.5).
  bool sniffs_received() const;
  bool sniffs_sent() const;
  void sniff_received(const wire::Frame& frame, util::Time now);
  void sniff_sent(const wire::Frame& frame, util::Time now);
  /// Receives a frame that the function has sent to itself, from a TIS of `domain` (PRM 3.4). False
  /// if no TIR takes it.
  bool handle_loopback(const wire::Frame& frame, TransportDomain domain, util::Time now);
  /// Executes posted WQEs, until `work` is spent. Returns when to call again: `now` if WQEs are
  /// left.
  util::Time run(util::Time now, util::WorkBudget& work) {
    const bool idle = ready_.empty() && now < next_flush_ && failed_.empty() && waiting_.empty();
    return idle ? next_flush_ : run_queues(now, work);
  }
  /// Call it first in a turn: writes CQEs for frames that the fabric has read since the last turn.
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

  /// Destroys all objects, until `work` is spent. True: none is left.
  bool dismantle(util::WorkBudget& work);

  /// Call it after MODIFY_SQ: an SQ in the error state has WQEs to flush without a doorbell.
  void schedule(SendQueue& sq);
  /// Call it after MODIFY_RQ: an RQ in the error state has WQEs to flush. It has no doorbell at
  /// all, so it is polled.
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
  // Users are declared after what they use, so that they are destroyed first.
  std::unique_ptr<hca::ObjectTable<Tis, Tisn>> tiss_;
  std::unique_ptr<hca::ObjectTable<SendQueue, Sqn>> send_queues_;
  std::unique_ptr<hca::ObjectTable<ReceiveQueue, Rqn>> receive_queues_;
  std::unique_ptr<hca::ObjectTable<Rqt, Rqtn>> rqts_;
  std::unique_ptr<hca::ObjectTable<Tir, Tirn>> tirs_;
  std::unique_ptr<FlowSteering> steering_;
  std::unique_ptr<EthTransmitter> transmitter_;
  std::unique_ptr<EthReceiver> receiver_;
  std::vector<Sqn> ready_;         ///< SQs with WQEs, in the order of their turns
  std::vector<Sqn> waiting_;       ///< SQs with completions that await the release of frames
  std::vector<Rqn> failed_;        ///< flushing RQs that frames have moved to the error state
  std::vector<Rqn> flushing_;      ///< RQs known to flush
  std::size_t next_flushing_ = 0;  ///< index in flushing_ of the next one to check
  util::Time next_flush_ = util::kNever;
};

}  // namespace softhca::connectx
