// The send queue (PRM 7.9): states, execution of WQEs in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "connectx/ethernet/eth_send_wqe.h"
#include "connectx/ethernet/eth_transmitter.h"
#include "connectx/ethernet/sq_completions.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/event/completion_queue.h"
#include "connectx/queue/blue_flame.h"
#include "connectx/queue/send_control.h"
#include "connectx/queue/shared_doorbells.h"
#include "connectx/queue/work_queue.h"
#include "hca/faults.h"
#include "hca/use.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/raw_queues.h"
#include "util/clock.h"
#include "util/notes.h"

namespace softhca::connectx {

class NetworkPort;

class SendQueue {
 public:
  using State = spec::connectx::sq_state;

  /// The objects that the context refers to, and those that the queue uses.
  struct Parts {
    CompletionQueue& cq;
    Tis* tis;  ///< null: the queue only executes NOPs
    const NetworkPort& port;
    EventQueues& event_queues;
    const BlueFlame& blue_flame;
    util::Notes& notes;
    bool multi_packet_sends = false;  ///< a property of the model
  };

  SendQueue(Sqn sqn, util::View<spec::connectx::sq_context> context, WorkQueue wq,
            const Parts& parts);

  UarPage uar_page() const { return wq_.uar_page; }
  /// Registers the SQ on its doorbell page. If the page is a shared one, polling it finds the
  /// doorbells.
  void listen(SharedDoorbells& doorbells) {
    listener_ = doorbells.listen(uar_page(), {SharedDoorbells::Queue::Kind::kSend, sqn_.value()});
  }
  Sqn sqn() const { return sqn_; }
  State state() const { return state_; }
  const hca::WorkRing& ring() const { return wq_.ring; }
  const Tis* tis() const { return parts_.tis; }
  const CompletionQueue& cq() const { return parts_.cq; }

  /// MODIFY_SQ (PRM 7.9.1). RST drops all posted WQEs. ERR flushes them if the context requests it.
  void set_state(State state);
  /// Drops CQEs that a fault rule holds back: software that resets or destroys an SQ expects none
  /// later.
  void drop_held();
  /// QUERY_SQ: the context as created, with the current state and counters.
  void write_context(util::MutableView<spec::connectx::sq_context> out);

  /// There may be new WQEs.
  void handle_doorbell() {
    rung_ = state_ != State::RST;
    wq_.ring.handle_doorbell();
  }
  /// True if the doorbell record shows WQEs that the device has not noted yet.
  bool has_news() { return wq_.ring.has_news(wq_.queue.record); }
  /// Called after a change of the fault rules, and for a new SQ. While there are rules, no WQE
  /// takes the fast path.
  void follow_fault_rules();
  /// Forgets the template, so that the next WQE takes the slow path.
  void forget_template() { template_.wqe.forget(); }
  bool has_work() const { return rung_; }
  bool scheduled = false;  ///< in the list of queues to run
  /// Executes WQEs until none is left, `budget` steps are spent, or the frames have used up the
  /// work of a turn.
  void run(EthTransmitter& transmitter, util::Time now, unsigned& budget);

  /// True if completions wait until the fabric has read their frames. The next turn reports them.
  bool awaits_release() const { return completions_.awaits_release(); }
  /// Reports the completions whose frames the fabric has read.
  void report_released(util::Time now);
  bool in_waiting_list = false;  ///< in the list of queues that await a release

 private:
  /// The WQE being executed. `eth` points into wqe_; an LSO WQE may take several turns.
  struct Current {
    SendWqeControl control{};
    EthSendWqe eth;
    EthTransmission transmission;
  };

  /// The effect of fault rules on the queue.
  struct Faults {
    bool any = false;                          ///< there are rules
    hca::FaultId stall = 0;                    ///< the rule that holds back the next WQE
    std::optional<rdma::WorkStatus> injected;  ///< how the next WQE ends
  };

  /// Starts the next WQE, or sends a frame of the current one. Call it again unless the result is
  /// false.
  bool execute(EthTransmitter& transmitter, unsigned& budget);
  /// Fast path of execute(): executes the next WQE as a whole if it matches the template. False,
  /// with no effect, if it does not, or if there is no WQE.
  bool execute_fast(EthTransmitter& transmitter);
  /// Starts the next WQE. False if there is none.
  bool start_next();
  /// Starts the WQE in wqe_, which holds its first basic block, or all of its `read` bytes.
  void start(std::uint32_t available, std::size_t read);
  /// Sends a frame of the current WQE, or a train. Returns the number of packets.
  unsigned step(EthTransmitter& transmitter, unsigned packets_max);

  /// True if a fault rule holds back the next WQE, whose first basic block is in wqe_.
  bool is_stalled();
  void complete();
  void fail(WqeFault fault);
  void fail(const EthWqeFault& fault);
  /// Reports the result of the current WQE, or queues the report.
  void finish(const std::optional<EthWqeFault>& fault);
  /// Fails the queue because its ring or doorbell record cannot be used. There is no WQE to
  /// complete, so only an event is posted.
  void fail_queue(std::string_view reason);
  void fail_with_cq();

  Sqn sqn_;
  SavedContext<spec::connectx::sq_context> context_;
  SharedDoorbells::Listener listener_;
  WorkQueue wq_;
  Parts parts_;
  hca::Use cq_use_;
  hca::Use tis_use_;
  bool flush_in_error_;
  EthSendRules rules_;
  State state_ = State::RST;
  bool rung_ = false;
  bool executing_ = false;  ///< current_ has frames left
  Faults faults_;
  Current current_;
  std::array<std::byte, kSendWqeMax> wqe_;
  EthFrameTemplate template_;
  std::uint64_t last_frame_ = 0;  ///< number of the last frame that refers to host memory
  SqCompletions completions_;
};

}  // namespace softhca::connectx
