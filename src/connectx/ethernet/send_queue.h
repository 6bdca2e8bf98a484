// The send queue (PRM 7.9): states, execution of WQEs in order, completions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "connectx/ethernet/eth_send_wqe.h"
#include "connectx/ethernet/eth_transmitter.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/event/completion_queue.h"
#include "connectx/queue/blue_flame.h"
#include "connectx/queue/send_control.h"
#include "connectx/queue/shared_doorbells.h"
#include "connectx/queue/work_queue.h"
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

  /// What its context refers to, and what it reports to.
  struct Parts {
    CompletionQueue& cq;
    Tis* tis;  ///< null: a queue for NOPs alone
    const NetworkPort& port;
    EventQueues& event_queues;
    const BlueFlame& blue_flame;
    util::Notes& notes;
    bool multi_packet_sends = false;  ///< of the model
  };

  SendQueue(Sqn sqn, util::View<spec::connectx::sq_context> context, WorkQueue wq,
            const Parts& parts);

  UarPage uar_page() const { return wq_.uar_page; }
  /// If its doorbell page is a shared one, what is stored there is heard from now on.
  void listen(SharedDoorbells& doorbells) {
    listener_ = doorbells.listen(uar_page(), {SharedDoorbells::Queue::Kind::kSend, sqn_.value()});
  }
  Sqn sqn() const { return sqn_; }
  State state() const { return state_; }
  const hca::WorkRing& ring() const { return wq_.ring; }
  const Tis* tis() const { return parts_.tis; }
  const CompletionQueue& cq() const { return parts_.cq; }

  /// MODIFY_SQ (PRM 7.9.1). To RST: all that is posted is forgotten. To ERR: it is flushed, if the
  /// SQ is to.
  void set_state(State state);
  /// QUERY_SQ: the context as created, with the state and counters of now.
  void write_context(util::MutableView<spec::connectx::sq_context> out);

  /// There may be WQEs: the doorbell was rung.
  void ring() { rung_ = state_ != State::RST; }
  /// The next WQE is looked at in full, wherever it lies.
  void forget_seen() { seen_.wqe.forget(); }
  bool has_work() const { return rung_; }
  bool scheduled = false;  ///< stands in the list of queues to be run
  /// Executes WQEs until none is left or `budget` steps are spent.
  void run(EthTransmitter& transmitter, util::Time now, unsigned& budget);

  /// Completions wait until the fabric has read what was sent: the next turn has them.
  bool awaits_release() const { return !waiting_.empty(); }
  /// Reports those that need to wait no longer.
  void report_released(util::Time now);
  bool in_waiting_list = false;  ///< stands in the list of queues that await that

 private:
  /// The WQE under execution. `eth` points into wqe_; an LSO WQE may take several turns.
  struct Current {
    SendWqeControl control{};
    EthSendWqe eth;
    EthTransmission transmission;
  };

  /// Executes the next WQE if it asks for a frame like the one before, as nearly all do. False, and
  /// nothing has happened, if it is another one or there is none.
  bool send_like_before(EthTransmitter& transmitter);
  /// Takes up the next WQE. False if there is none.
  bool start_next();
  /// Its first basic block stands in wqe_, or all of its `read` bytes.
  void start(std::uint32_t available, std::size_t read);
  /// One frame of the current WQE, or some of them together. Returns how many.
  unsigned step(EthTransmitter& transmitter, unsigned packets_max);

  /// The end of a WQE, which its CQE tells when all frames up to `frame` are released.
  struct Ending {
    std::uint64_t frame;
    SendWqeControl control;
    std::optional<EthWqeFault> fault;  ///< nothing: success
  };

  void complete();
  void fail(WqeFault fault);
  void fail(const EthWqeFault& fault);
  /// Reports the end of the current WQE, or lets it wait.
  void finish(const std::optional<EthWqeFault>& fault);
  void report(const Ending& ending);
  void write_success(const SendWqeControl& control);
  void write_error(const SendWqeControl& control, const EthWqeFault& fault);
  /// The ring or its doorbell record cannot be used: there is no WQE to complete, only an event.
  void fail_queue(std::string_view reason);
  void post(std::span<std::byte, 64> cqe, bool solicited);

  Sqn sqn_;
  SavedContext<spec::connectx::sq_context> context_;
  SharedDoorbells::Listener listener_;
  WorkQueue wq_;
  Parts parts_;
  hca::Use cq_use_;
  hca::Use tis_use_;
  std::uint32_t user_index_;
  bool flush_in_error_;
  EthSendRules rules_;
  State state_ = State::RST;
  bool rung_ = false;
  bool has_reported_error_ = false;  ///< since RST
  bool executing_ = false;           ///< current_ has frames left
  util::Time now_{};                 ///< of the present turn
  Current current_;
  std::array<std::byte, kSendWqeMax> wqe_;
  EthSeen seen_;
  std::uint64_t last_frame_ = 0;  ///< the last that refers to memory of the host
  std::vector<Ending> waiting_;   ///< in the order of their WQEs; keeps its room
};

}  // namespace softhca::connectx
