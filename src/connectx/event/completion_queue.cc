#include "connectx/event/completion_queue.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <utility>

#include "spec/connectx/cq.h"
#include "spec/connectx/cqe.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using Record = spec::connectx::cq_doorbell_record;

/// Indices of the dwords of the doorbell record (PRM Table 72).
constexpr unsigned kUpdateDword = Record::update_ci.kOffset / sizeof(std::uint32_t);
constexpr unsigned kArmDword = Record::arm_ci.kOffset / sizeof(std::uint32_t);
/// A due time in the next turn, before all timed events.
constexpr util::Time kAtOnce = util::Time::min();

/// CQEs that fault rules hold back in all CQs of the process. Guests choose how many CQs they have.
std::atomic<std::size_t> held_back = 0;

}  // namespace

CompletionQueue::CompletionQueue(Cqn cqn, Attributes attributes, EventQueues& eqs,
                                 EventModeration& moderation)
    : cqn_(cqn),
      attributes_(std::move(attributes)),
      // The ring's counters are as wide as those in the doorbell record.
      ring_({.log_count = attributes_.log_size,
             .stride = attributes_.stride,
             .counter_bits = Record::update_ci.kWidth,
             .collapsed = attributes_.collapsed,
             .overrun_ignore = attributes_.overrun_ignore},
            std::move(attributes_.queue.memory)),
      eqs_(eqs),
      moderation_(moderation) {
  if (attributes_.compression && !attributes_.collapsed) {
    attention_ |= kCompresses;
    session_ = std::make_unique<CqeSession>(*attributes_.compression,
                                            std::min(CqeSession::kCqesMax, ring_.size()));
  }
  follow_fault_rules();
}

CompletionQueue::~CompletionQueue() {
  if (held_until_) moderation_.forget(cqn_, *held_until_);
  if (session_is_held_) moderation_.forget(cqn_, kAtOnce);
  if (stall_ != nullptr) held_back -= stall_->held.size();
}

void CompletionQueue::set_moderation(std::uint16_t period, std::uint16_t max_count) {
  attributes_.period = period;
  attributes_.max_count = max_count;
}

spec::connectx::cq_arm_state CompletionQueue::arm_state() const {
  using State = spec::connectx::cq_arm_state;
  if ((attention_ & kArmedAll) != 0) return State::ARMED;
  return (attention_ & kArmedSolicited) != 0 ? State::SOLICITED_ARMED : State::FIRED;
}

std::optional<CompletionQueue::Unread> CompletionQueue::unread() {
  const auto consumer = attributes_.queue.record.read(kUpdateDword);
  if (!consumer) return std::nullopt;
  ring_.set_consumer(*consumer);
  return Unread{.in_ring = (ring_.producer() - ring_.consumer()) & ring_.mask(),
                .held = stall_ == nullptr ? 0 : stall_->held.size()};
}

bool CompletionQueue::has_room(std::uint32_t ahead) {
  return !ring_.full(ahead) || (unread() && !ring_.full(ahead));
}

bool CompletionQueue::overrun() {
  fail(Status::CQ_OVERFLOW, Syndrome::CQ_OVERRUN, "overrun (PRM 7.12.5)");
  return false;
}

/// Writes a CQE whose owner bit is still 0.
bool CompletionQueue::publish(std::span<std::byte> cqe) {
  put_owner(cqe);
  // In a 128-byte entry, the CQE is the second half.
  return ring_.publish(cqe) || lost_memory();
}

bool CompletionQueue::lost_memory() {
  fail(Status::CQ_WRITE_FAIL, Syndrome::CQ_ACCESS_VIOLATION_ERROR, "its memory is not mapped");
  return false;
}

bool CompletionQueue::resize(MappedQueue queue, unsigned log_size, std::uint32_t log_page_size,
                             std::uint32_t page_offset) {
  std::array<std::byte, kCqeSize> bytes{};
  const util::MutableView<spec::connectx::cqe64> cqe(bytes);
  cqe.set(spec::connectx::cqe64::opcode,
          static_cast<std::uint32_t>(spec::connectx::cqe_opcode::RESIZE_CQ));
  if (!publish(bytes)) return false;
  ring_.move(log_size, std::move(queue.memory));
  attributes_.log_size = log_size;
  attributes_.log_page_size = log_page_size;
  attributes_.page_offset = page_offset;
  attributes_.queue.translations = std::move(queue.translations);
  attributes_.queue.memory_use = std::move(queue.memory_use);
  attributes_.queue.in_umem = queue.in_umem;
  return true;
}

/// Traces a CQE. With a trace, every CQE takes the slow path, because its ring cannot be accessed
/// directly.
void CompletionQueue::note(std::span<const std::byte, kCqeSize> bytes) const {
  if (eqs_.trace() == nullptr) return;
  using AnyCqe = spec::connectx::cqe64_requester;  // the queue number is at the same offset in all
                                                   // formats
  const util::View<AnyCqe> cqe(bytes);
  eqs_.trace()->note(util::TraceStep::kCompletion,
                     to_string(static_cast<spec::connectx::cqe_opcode>(cqe.get(AnyCqe::opcode))),
                     {{"cqn", cqn_.value()},
                      {"queue", cqe.get(AnyCqe::qpn)},
                      {"wqe_counter", cqe.get(AnyCqe::wqe_counter)},
                      {"producer", ring_.producer()}});
}

inline bool CompletionQueue::write_any(std::span<std::byte> cqe, bool solicited) {
  if (failed()) return false;
  if (!has_room()) return overrun();
  note(cqe.last<kCqeSize>());
  if (!publish(cqe)) return false;
  note_written(solicited);
  return true;
}

inline void CompletionQueue::note_written(bool solicited) {
  if (solicited) {
    after_solicited_ = ring_.producer();
    has_solicited_ = true;
  }
  if ((attention_ & kArmedAll) != 0 || (solicited && is_armed())) event();
}

bool CompletionQueue::write_slow(std::span<std::byte, kCqeSize> cqe, bool solicited) {
  if (is_stalled()) return hold_back(cqe, solicited);
  return session_ == nullptr ? write_any(cqe, solicited) : write_compressed(cqe, solicited);
}

/// Adds a CQE to the session if it resembles the session's CQEs; else closes the session and writes
/// the CQE. A session waits for more CQEs until the end of the turn at most.
bool CompletionQueue::write_compressed(std::span<std::byte, kCqeSize> cqe, bool solicited) {
  const bool waits = !solicited && CqeSession::is_kind(cqe);
  if (!session_->empty()) {
    const bool stays = waits && session_->takes(cqe) && !ring_.goes_round(session_->count());
    if (!stays && !close_session()) return false;
  }
  if (!waits) return write_any(cqe, solicited);
  if (failed()) return false;
  if (!has_room(session_->count())) {
    (void)flush();
    return failed() ? false : overrun();
  }
  session_->add(cqe);
  if (!session_is_held_) moderation_.hold(cqn_, kAtOnce);
  session_is_held_ = true;
  return true;
}

bool CompletionQueue::flush() {
  return session_ == nullptr || session_->empty() ? !failed() : close_session();
}

/// @pre the session is not empty, and the ring has room for it
bool CompletionQueue::close_session() {
  if (failed()) return false;
  const auto count = session_->count();
  assert(count != 0);
  bool written = true;
  for (std::uint32_t i = 0; i != session_->arrays(); ++i) {
    written = ring_.put(CqeSession::place(i), session_->array(i)) && written;
  }
  auto title = session_->title();
  session_->clear();
  if (!written) return lost_memory();
  note(title);
  if (!publish(title)) return false;
  ring_.pass(count - 1);
  note_written(false);
  return true;
}

bool CompletionQueue::write_wide(std::span<std::byte, kWideCqeSize> cqe, bool solicited) {
  assert(attributes_.stride == kWideCqeSize && session_ == nullptr);
  if (is_stalled()) return hold_back(cqe, solicited);
  return write_any(cqe, solicited);
}

/// True if the next CQE must wait behind a stall, which a fault rule may begin with it.
bool CompletionQueue::is_stalled() {
  if ((attention_ & kFaulty) == 0 || failed()) return false;
  if (stall_ != nullptr) return true;
  const auto* rule = eqs_.faults().take({.action = hca::FaultAction::kStallCq, .cq = cqn_.value()});
  if (rule == nullptr) return false;
  stall_ = std::make_unique<Stall>();
  stall_->rule = rule->id;
  return true;
}

bool CompletionQueue::hold_back(std::span<const std::byte> cqe, bool solicited) {
  if (stall_->held.size() >= ring_.size() || held_back >= kHeldMax) return overrun();
  ++held_back;
  auto& held = stall_->held.emplace_back();
  std::ranges::copy(cqe, held.bytes.begin());
  held.size = cqe.size();
  held.solicited = solicited;
  return true;
}

void CompletionQueue::follow_fault_rules() {
  attention_ &= static_cast<std::uint8_t>(~kFaulty);
  if (stall_ != nullptr && !eqs_.faults().holds(stall_->rule)) {
    const auto stall = std::move(stall_);
    held_back -= stall->held.size();
    for (auto& held : stall->held) {
      const auto cqe = std::span(held.bytes).first(held.size);
      if (held.size == kWideCqeSize) {
        (void)write_any(cqe, held.solicited);
      } else {
        (void)write_slow(cqe.first<kCqeSize>(), held.solicited);
      }
    }
  }
  if (eqs_.faults()) attention_ |= kFaulty;
}

void CompletionQueue::drop_held(Qpn number, std::optional<std::uint32_t> rq_user_index) {
  using AnyCqe = spec::connectx::cqe64_requester;
  if (stall_ == nullptr) return;
  held_back -= std::erase_if(stall_->held, [&](const Stall::Held& held) {
    const util::View<AnyCqe> cqe(std::span(held.bytes).first(held.size).last<kCqeSize>());
    if (!rq_user_index) return cqe.get(AnyCqe::qpn) == number.value();
    const auto opcode = static_cast<spec::connectx::cqe_opcode>(cqe.get(AnyCqe::opcode));
    const bool is_error = opcode == spec::connectx::cqe_opcode::RESPONDER_ERROR;
    return cqe.get(AnyCqe::srqn_user_index) == *rq_user_index &&
           cqe.get(AnyCqe::qpn) == (is_error ? number.value() : 0);
  });
}

void CompletionQueue::handle_arm(std::uint32_t arm_dword) {
  if (failed()) return;
  util::Struct<Record> record;
  util::store_be32(&record.bytes()[Record::arm_ci.kOffset], arm_dword);
  const std::uint32_t consumer = record.get(Record::arm_ci);
  const bool solicited_only = record.get(Record::cmd) != 0;
  // "no further events are generated before a new request for notification with a higher value of
  // cmd_sn is executed" (PRM 7.12.4). cmd_sn counts modulo 4, so any other value counts as higher.
  requested_ = record.get(Record::cmd_sn);
  if (answered_ == requested_) return;
  // A later request for solicited completions does not weaken a request for all of them (PRM
  // 7.12.4).
  attention_ |= solicited_only ? kArmedSolicited : kArmedAll;
  // "If new CQEs are posted to the CQ after the reporting of a completion event and these CQEs are
  // not yet consumed, then an event will be generated immediately." CQEs that were in the CQ at the
  // last event are not reported again, even if software arms before it polls them.
  const auto since = ring_.distance(last_notified_, consumer) > 0 ? last_notified_ : consumer;
  const bool pending = solicited_only
                           ? has_solicited_ && ring_.distance(after_solicited_, since) > 0
                           : ring_.distance(ring_.producer(), since) > 0;
  if (pending) event();
}

void CompletionQueue::listen(SharedDoorbells& doorbells) {
  listener_ = doorbells.listen(attributes_.uar_page,
                               {SharedDoorbells::Queue::Kind::kCompletion, cqn_.value()});
}

void CompletionQueue::poll_arm() {
  // If this arming was already handled, it has no effect, because cmd_sn is unchanged.
  if (const auto arm = attributes_.queue.record.read(kArmDword)) handle_arm(*arm);
}

/// Reports an event: immediately, or when enough completions or enough time have accumulated.
void CompletionQueue::event() {
  const auto due = notified_at_ + std::chrono::microseconds(attributes_.period);
  const bool moderated = attributes_.period != 0 && attributes_.max_count != 0;
  const auto completions = (ring_.producer() - last_notified_) & ring_.mask();
  if (!moderated || completions >= attributes_.max_count || due <= moderation_.now()) {
    notify();
  } else if (!held_until_) {
    held_until_ = due;
    moderation_.hold(cqn_, due);
  }
}

void CompletionQueue::report_held_event() {
  if (session_is_held_) {
    session_is_held_ = false;
    (void)flush();  // after a failure, the queues fail with their next CQE
    return;
  }
  assert(held_until_);
  held_until_.reset();
  // The CQ may have failed in the meantime.
  if (!failed()) notify();
}

void CompletionQueue::notify() {
  if (held_until_) moderation_.forget(cqn_, *held_until_);
  held_until_.reset();
  attention_ &= static_cast<std::uint8_t>(~kArmed);
  answered_ = requested_;
  last_notified_ = ring_.producer();
  notified_at_ = moderation_.now();
  eqs_.post_completion(attributes_.eqn, cqn_);
}

void CompletionQueue::fail(Status status, Syndrome syndrome, std::string_view reason) {
  status_ = status;
  attention_ |= kFailed;
  eqs_.notes().warn("CQ {:#x} failed: {}", cqn_.value(), reason);
  using Data = spec::connectx::event_data_cq_error;
  util::Struct<Data> data;
  data.set(Data::cqn, cqn_.value());
  data.set(Data::syndrome, static_cast<std::uint8_t>(syndrome));
  eqs_.post(spec::connectx::event_type::CQ_ERROR, 0, EventQueues::event_data(data));
}

void CompletionQueues::report_held_events(util::WorkBudget& work) {
  moderation_.report_due(work, [this](Cqn cqn) { table_.find(cqn)->report_held_event(); });
}

}  // namespace softhca::connectx
