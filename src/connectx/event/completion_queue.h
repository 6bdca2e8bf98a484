// Completion queues (PRM 7.12): CQEs in host memory, overrun, arming.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/event/cqe_session.h"
#include "connectx/event/event_moderation.h"
#include "connectx/event/event_queue.h"
#include "connectx/queue/mapped_queue.h"
#include "connectx/queue/shared_doorbells.h"
#include "hca/object_table.h"
#include "hca/published_ring.h"
#include "hca/use.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

class CompletionQueue : public hca::Used {
 public:
  struct Attributes {
    unsigned log_size = 0;
    unsigned stride = 64;  ///< bytes of an entry: 64 or 128
    bool padded = false;   ///< 128-byte entries with cqe_sz BYTES_128_PADDED
    bool overrun_ignore = false;
    bool collapsed = false;  ///< cc: every CQE is written to entry 0
    /// Format of compressed receive CQEs. Unset: they are not compressed.
    std::optional<CqeSession::Format> compression;
    UarPage uar_page;
    Eqn eqn;
    // Event moderation (PRM 7.13.14). If either is 0, events are not moderated.
    std::uint16_t period = 0;     ///< us since the last event (cq_period_mode 0)
    std::uint16_t max_count = 0;  ///< completions since the one that triggered the last event
    // As in the CQ's context.
    std::uint32_t log_page_size = 0;
    std::uint32_t page_offset = 0;
    MappedQueue queue;
    hca::Use uar_use;
    hca::Use eq_use;
  };
  static constexpr std::size_t kCqeSize = 64;
  static constexpr std::size_t kWideCqeSize = 128;

  CompletionQueue(Cqn cqn, Attributes attributes, EventQueues& eqs, EventModeration& moderation);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  Cqn cqn() const { return cqn_; }
  const Attributes& attributes() const { return attributes_; }
  /// MODIFY_CQ (PRM 12.7.4). An event that is already held back keeps its due time.
  void set_moderation(std::uint16_t period, std::uint16_t max_count);
  /// Numbers of CQEs.
  struct Unread {
    std::uint32_t in_ring = 0;  ///< not yet consumed
    std::size_t held = 0;       ///< held back by a fault rule: they have no place in the ring yet
  };
  /// By the doorbell record's current consumer index. Unset if the record is not mapped.
  std::optional<Unread> unread();
  /// MODIFY_CQ of the size (PRM 7.12.6). The last CQE in the old memory makes software continue in
  /// `queue`, which has no record of its own. If this returns false, the CQ has failed.
  /// @pre the CQEs in the ring are fewer than both sizes, and with those held fewer than the new
  /// one; the CQ has not failed, and compressed CQEs are flushed
  bool resize(MappedQueue queue, unsigned log_size, std::uint32_t log_page_size,
              std::uint32_t page_offset);
  /// The ring. Its consumer counter is that of the last read of the doorbell record.
  const hca::PublishedRing& ring() const { return ring_; }
  spec::connectx::cq_arm_state arm_state() const;
  spec::connectx::cq_status status() const { return status_; }
  bool failed() const { return status_ != Status::OK; }
  /// Writes the CQEs that wait to be compressed. Returns false in the cases in which write() does.
  bool flush();
  /// Producer counter at the last completion event.
  std::uint32_t last_notified() const { return last_notified_; }
  std::uint32_t last_solicited() const { return after_solicited_; }

  /// Writes a 64-byte CQE whose owner bit is still 0, and the completion event if the CQ is armed.
  /// `solicited`: the CQE also fires a CQ that is armed for solicited events only. It is true for
  /// errors. Returns false if the CQ has overrun or its memory is not mapped. The CQ has then
  /// failed permanently, and its queues must fail, too.
  bool write(std::span<std::byte, kCqeSize> cqe, bool solicited) {
    // Fast path: the CQ is not armed, and the ring has room by the consumer counter read last.
    if (solicited || attention_ != 0 || ring_.full()) {
      return write_slow(cqe, solicited);
    }
    put_owner(cqe);
    return ring_.publish_fast(std::span<const std::byte, kCqeSize>(cqe)) ||
           write_slow(cqe, solicited);
  }

  /// Like write(), with 64 bytes before the CQE. @pre attributes().stride is 128
  bool write_wide(std::span<std::byte, kWideCqeSize> cqe, bool solicited);

  /// Handles the arm doorbell (PRM 7.12.4). `arm_dword`: the first dword of the doorbell, which
  /// software also writes to the arm record.
  void handle_arm(std::uint32_t arm_dword);
  /// Registers the CQ on its doorbell page. If the page is a shared one, poll_arm() arms the CQ.
  void listen(SharedDoorbells& doorbells);
  /// Called after a CQ doorbell on a shared page: calls handle_arm() with the arm record. A record
  /// of zeros may be the first arming, or a record not yet in use. In the second case, software
  /// gets an event that it did not request.
  void poll_arm();

  /// Called after a change of the fault rules, and for a new CQ. Writes the CQEs that no rule holds
  /// back any more.
  void follow_fault_rules();
  /// Drops the CQEs of a QP that a fault rule holds back, as software drops those in the ring.
  /// With `rq_user_index`, `number` is that of an RQ, whose CQEs name it only by its user index,
  /// unless they report an error.
  void drop_held(Qpn number, std::optional<std::uint32_t> rq_user_index = std::nullopt);

  /// Called when a held event is due, or after the turn in which CQEs were compressed.
  void report_held_event();
  /// Cost of destroying the CQ.
  std::int64_t dismantle_work() const { return kDestroyWork + ring_.memory().dismantle_work(); }

 private:
  static constexpr std::int64_t kDestroyWork = 300;
  using Syndrome = spec::connectx::cq_error_syndrome;
  using Status = spec::connectx::cq_status;
  /// Reasons why a CQE takes the slow path.
  enum Attention : std::uint8_t {
    kArmedSolicited = 1,  ///< for solicited CQEs only
    kArmedAll = 2,
    kCompresses = 4,
    kFailed = 8,
    kFaulty = 16,  ///< there are fault rules
  };
  static constexpr std::uint8_t kArmed = kArmedSolicited | kArmedAll;

  /// CQEs that a fault rule holds back.
  struct Stall {
    struct Held {
      std::array<std::byte, kWideCqeSize> bytes{};
      std::size_t size = 0;
      bool solicited = false;
    };
    hca::FaultId rule = 0;
    std::vector<Held> held;
  };
  /// Most CQEs that are held back.
  static constexpr std::size_t kHeldMax = 1 << 16;

  bool is_stalled();
  bool hold_back(std::span<const std::byte> cqe, bool solicited);
  [[gnu::noinline]] bool write_slow(std::span<std::byte, kCqeSize> cqe, bool solicited);
  /// Software owns an entry when its owner bit equals the lap's parity (PRM 7.12.4).
  void put_owner(std::span<std::byte> cqe) const { cqe.back() |= std::byte(ring_.lap()); }
  void note(std::span<const std::byte, kCqeSize> cqe) const;
  bool is_armed() const { return (attention_ & kArmed) != 0; }
  bool has_room(std::uint32_t ahead = 0);
  bool write_compressed(std::span<std::byte, kCqeSize> cqe, bool solicited);
  bool overrun();
  bool lost_memory();
  bool close_session();
  void note_written(bool solicited);
  bool write_any(std::span<std::byte> cqe, bool solicited);
  bool publish(std::span<std::byte> cqe);
  void fail(Status status, Syndrome syndrome, std::string_view reason);
  void event();
  void notify();

  Cqn cqn_;
  Attributes attributes_;
  hca::PublishedRing ring_;
  EventQueues& eqs_;
  EventModeration& moderation_;
  std::uint32_t after_solicited_ = 0;     ///< producer counter after the last solicited CQE
  std::uint32_t last_notified_ = 0;       ///< producer counter at the last completion event
  util::Time notified_at_{};              ///< time of the last completion event
  bool has_solicited_ = false;            ///< a solicited CQE was written
  std::optional<util::Time> held_until_;  ///< due time of the held event
  std::uint8_t attention_ = 0;            ///< Attention bits
  /// Null unless the CQ compresses CQEs. While the session holds CQEs, moderation_ holds an event
  /// of the CQ with time kAtOnce.
  std::unique_ptr<CqeSession> session_;
  bool session_is_held_ = false;
  std::uint32_t requested_ = 0;            ///< cmd_sn of the last arming
  std::optional<std::uint32_t> answered_;  ///< cmd_sn of the last arming that led to an event
  Status status_ = Status::OK;
  std::unique_ptr<Stall> stall_;  ///< null: no CQE is held back
  SharedDoorbells::Listener listener_;
};

class CompletionQueues {
 public:
  /// CQN 0 is not used, because drivers' logs and tables are easier to read without it.
  CompletionQueues(EventQueues& eqs, const Limits& limits)
      : eqs_(eqs), table_(1, Limits::count(limits.log_max_cq)) {}

  CompletionQueue* create(CompletionQueue::Attributes attributes) {
    return table_.emplace(std::move(attributes), eqs_, moderation_);
  }
  /// Called after a change of the fault rules.
  void follow_fault_rules() {
    table_.for_each([](CompletionQueue& cq) { cq.follow_fault_rules(); });
  }
  CompletionQueue* find(Cqn cqn) { return table_.find(cqn); }
  void destroy(Cqn cqn) { table_.erase(cqn); }
  const hca::ObjectTable<CompletionQueue, Cqn>& all() const { return table_; }
  /// Destroys CQs until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work) {
    return table_.dismantle(work, [](const CompletionQueue& cq) { return cq.dismantle_work(); }) &&
           moderation_.dismantle(work);
  }

  /// Reports due events until `work` is spent.
  void run(util::Time now, util::WorkBudget& work) {
    if (moderation_.begin_turn(now)) report_held_events(work);
  }
  /// Time at which the next event is due.
  util::Time next_event() const { return moderation_.next(); }

 private:
  void report_held_events(util::WorkBudget& work);

  EventQueues& eqs_;
  EventModeration moderation_;
  hca::ObjectTable<CompletionQueue, Cqn> table_;
};

}  // namespace softhca::connectx
