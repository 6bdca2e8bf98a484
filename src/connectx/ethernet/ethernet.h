// The Ethernet side of the device (PRM 7.5 to 7.11): send queues of the netdev and of raw packet
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
    bool multi_packet_sends = false;  ///< of the model
  };

  explicit Ethernet(const Parts& parts);
  ~Ethernet();
  Ethernet(const Ethernet&) = delete;
  Ethernet& operator=(const Ethernet&) = delete;

  /// True if `sqn` is an SQ. QPs and SQs share one number space.
  bool owns(Sqn sqn) const;
  /// Whether the doorbell of this SQ is in this doorbell page.
  bool listens(Sqn sqn, UarPage page) const;
  /// The next WQE of the SQ may lie elsewhere. @pre it listens
  void forget_seen(Sqn sqn);
  /// The send doorbell of an SQ was rung (PRM 7.4.4): its WQEs are executed by the next run().
  void doorbell(Sqn sqn);
  /// Receives the frame, if it is one of a flow that is known since the last forget_flows(): no
  /// RoCE traffic, and for one TIR. False if it is not.
  bool handle_known(const wire::Frame& frame, util::Time now);
  /// A command was executed: frames may go other ways now.
  void forget_flows();
  /// A frame from the wire that is not RoCE traffic of a QP: steered, hashed, and written to RQs.
  void handle_frame(const wire::Frame& frame, util::Time now);
  /// A command was executed: transmit tables may decide what is sent, or do no more.
  void look_for_transmit_tables();
  /// What the function receives and sends is copied to whom sniffer tables choose (PRM 3.5), if
  /// there are any.
  bool sniffs_received() const;
  bool sniffs_sent() const;
  void sniff_received(const wire::Frame& frame, util::Time now);
  void sniff_sent(const wire::Frame& frame, util::Time now);
  /// One that the function has sent to itself, from a TIS of `domain` (PRM 3.4). False if no TIR
  /// takes it.
  bool handle_loopback(const wire::Frame& frame, TransportDomain domain, util::Time now);
  /// Executes posted WQEs. Returns when it must be called next: `now` if WQEs are left.
  util::Time run(util::Time now, util::WorkBudget& work) {
    const bool idle = ready_.empty() && now < next_flush_ && failed_.empty() && waiting_.empty();
    return idle ? next_flush_ : run_queues(now, work);
  }
  /// Before anything else in a turn: CQEs of what the fabric has read since the last one.
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

  /// Destroys objects, until `work` is spent, when all of them go. True: none is left.
  bool dismantle(util::WorkBudget& work);

  /// After MODIFY_SQ: an SQ in the error state has WQEs to flush without a doorbell.
  void schedule(SendQueue& sq);
  /// After MODIFY_RQ: likewise, and an RQ has no doorbell at all, so it is looked at again and
  /// again.
  void schedule_flush(ReceiveQueue& rq);

  /// New queues, in RST. Null if there are too many. `tis`: null for a queue for NOPs alone.
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
  // In the order of their uses: those that use others go first.
  std::unique_ptr<hca::ObjectTable<Tis, Tisn>> tiss_;
  std::unique_ptr<hca::ObjectTable<SendQueue, Sqn>> send_queues_;
  std::unique_ptr<hca::ObjectTable<ReceiveQueue, Rqn>> receive_queues_;
  std::unique_ptr<hca::ObjectTable<Rqt, Rqtn>> rqts_;
  std::unique_ptr<hca::ObjectTable<Tir, Tirn>> tirs_;
  std::unique_ptr<FlowSteering> steering_;
  std::unique_ptr<EthTransmitter> transmitter_;
  std::unique_ptr<EthReceiver> receiver_;
  std::vector<Sqn> ready_;         ///< with WQEs, in the order of their turns
  std::vector<Sqn> waiting_;       ///< with completions that await the release of frames
  std::vector<Rqn> failed_;        ///< that frames have taken to the error state, and that flush
  std::vector<Rqn> flushing_;      ///< that were found to flush
  std::size_t next_flushing_ = 0;  ///< of these, the one to look at next
  util::Time next_flush_ = util::kNever;
};

}  // namespace softhca::connectx
