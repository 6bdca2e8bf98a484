// Completion queues (PRM 7.12): CQEs in host memory, overrun, arming.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

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
    /// Set if CQEs of receives are compressed: their format.
    std::optional<CqeSession::Format> compression;
    UarPage uar_page;
    Eqn eqn;
    // Event moderation (PRM 7.13.14); 0 in either: none.
    std::uint16_t period = 0;     ///< us since the last event (cq_period_mode 0)
    std::uint16_t max_count = 0;  ///< completions since the one that triggered the last event
    // Fields of the CQ's context.
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
  /// MODIFY_CQ (PRM 12.7.4). An event already held back keeps its time.
  void set_moderation(std::uint16_t period, std::uint16_t max_count);
  /// Number of CQEs not yet consumed, by the doorbell record's current consumer index. Nothing if
  /// the record is not mapped.
  std::optional<std::uint32_t> unread();
  /// MODIFY_CQ of the size (PRM 7.12.6): the last CQE in the old memory makes software continue in
  /// `queue`, which has no record of its own. False on failure; the CQ has then failed.
  /// @pre unread() is less than both sizes, the CQ has not failed, and compressed CQEs are flushed
  bool resize(MappedQueue queue, unsigned log_size, std::uint32_t log_page_size,
              std::uint32_t page_offset);
  /// Its consumer counter is from the last read of the doorbell record.
  const hca::PublishedRing& ring() const { return ring_; }
  spec::connectx::cq_arm_state arm_state() const;
  spec::connectx::cq_status status() const { return status_; }
  bool failed() const { return status_ != Status::OK; }
  /// Writes CQEs that wait to be compressed. False as write().
  bool flush();
  /// Producer counter at the last completion event.
  std::uint32_t last_notified() const { return last_notified_; }
  std::uint32_t last_solicited() const { return after_solicited_; }

  /// Writes a 64-byte CQE whose owner bit is still 0, and the completion event if the CQ is armed.
  /// `solicited`: the CQE also counts for software that waits only for solicited events; errors do.
  /// False if the CQ has overrun or its memory is not mapped: it has then failed for good, and its
  /// queues with it.
  bool write(std::span<std::byte, kCqeSize> cqe, bool solicited) {
    // Fast path: the ring has room by its last known consumer counter, and the CQ is not armed.
    if (solicited || attention_ != 0 || ring_.full()) {
      return write_closely(cqe, solicited);
    }
    put_owner(cqe);
    return ring_.publish_local(std::span<const std::byte, kCqeSize>(cqe)) ||
           write_closely(cqe, solicited);
  }

  /// Like write(), with 64 bytes before the CQE. @pre attributes().stride is 128
  bool write_wide(std::span<std::byte, kWideCqeSize> cqe, bool solicited);

  /// The arm doorbell (PRM 7.12.4). `arm_dword`: its first dword, which is also that of the arm
  /// record.
  void handle_arm(std::uint32_t arm_dword);
  /// If its doorbell page is a shared one, hear_arm() arms the CQ from now on.
  void listen(SharedDoorbells& doorbells);
  /// Called after a CQ doorbell on a shared page: runs handle_arm() with the arm record. A record
  /// of zeros may be the first arming, or not yet in use; then software gets an event that it did
  /// not ask for.
  void hear_arm();

  /// Called after the period of a held event, or after the turn in which CQEs were compressed.
  void report_held_event();
  /// Cost of destroying the CQ.
  std::int64_t dismantle_work() const { return kDestroyWork + ring_.memory().dismantle_work(); }

 private:
  static constexpr std::int64_t kDestroyWork = 300;
  using Syndrome = spec::connectx::cq_error_syndrome;
  using Status = spec::connectx::cq_status;
  /// Reasons to take the slow path for a CQE.
  enum Attention : std::uint8_t {
    kArmedSolicited = 1,  ///< for solicited CQEs only
    kArmedAll = 2,
    kCompresses = 4,
    kFailed = 8,
  };
  static constexpr std::uint8_t kArmed = kArmedSolicited | kArmedAll;

  [[gnu::noinline]] bool write_closely(std::span<std::byte, kCqeSize> cqe, bool solicited);
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
  std::uint32_t after_solicited_ = 0;  ///< producer after the last solicited CQE
  std::uint32_t last_notified_ = 0;    ///< producer at the last completion event
  util::Time notified_at_{};           ///< time of the last completion event
  bool seen_solicited_ = false;
  std::optional<util::Time> held_until_;  ///< due time of the held event
  std::uint8_t attention_ = 0;            ///< Attention bits
  /// Null unless the CQ compresses. While the session holds CQEs, the CQ is among the held events
  /// with time kAtOnce.
  std::unique_ptr<CqeSession> session_;
  bool session_is_held_ = false;
  std::uint32_t requested_ = 0;            ///< cmd_sn of the last arming
  std::optional<std::uint32_t> answered_;  ///< cmd_sn of the arming that was answered with an event
  Status status_ = Status::OK;
  SharedDoorbells::Listener listener_;
};

class CompletionQueues {
 public:
  /// CQN 0 is not used: drivers' logs and tables are easier to read without it.
  CompletionQueues(EventQueues& eqs, const Limits& limits)
      : eqs_(eqs), table_(1, Limits::count(limits.log_max_cq)) {}

  CompletionQueue* create(CompletionQueue::Attributes attributes) {
    return table_.emplace(std::move(attributes), eqs_, moderation_);
  }
  CompletionQueue* find(Cqn cqn) { return table_.find(cqn); }
  void destroy(Cqn cqn) { table_.erase(cqn); }
  const hca::ObjectTable<CompletionQueue, Cqn>& all() const { return table_; }
  /// Destroys all CQs, until `work` is spent. True: none is left.
  bool dismantle(util::WorkBudget& work) {
    return table_.dismantle(work, [](const CompletionQueue& cq) { return cq.dismantle_work(); }) &&
           moderation_.dismantle(work);
  }

  /// Reports the events that are due, until `work` is spent.
  void run(util::Time now, util::WorkBudget& work) {
    if (moderation_.begin_turn(now)) report_held_events(work);
  }
  /// When the next event is due.
  util::Time next_event() const { return moderation_.next(); }

 private:
  void report_held_events(util::WorkBudget& work);

  EventQueues& eqs_;
  EventModeration moderation_;
  hca::ObjectTable<CompletionQueue, Cqn> table_;
};

}  // namespace softhca::connectx
