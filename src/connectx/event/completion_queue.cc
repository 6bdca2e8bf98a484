#include "connectx/event/completion_queue.h"

#include <cassert>
#include <utility>

#include "spec/connectx/cq.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using Record = spec::connectx::cq_doorbell_record;

/// Counters of a CQ have as many bits as the doorbell record has for them.
constexpr std::uint32_t kCounterMask = Record::update_ci.kMax;

/// Signed distance a - b of 24-bit counters.
std::int32_t distance(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}

}  // namespace

CompletionQueue::CompletionQueue(std::uint32_t cqn, Attributes attributes, EventQueues& eqs,
                                 EventModeration& moderation)
    : cqn_(cqn), attributes_(std::move(attributes)), eqs_(eqs), moderation_(moderation) {}

CompletionQueue::~CompletionQueue() {
  if (held_until_) moderation_.forget(cqn_, *held_until_);
}

void CompletionQueue::set_moderation(std::uint16_t period, std::uint16_t max_count) {
  attributes_.period = period;
  attributes_.max_count = max_count;
}

spec::connectx::cq_arm_state CompletionQueue::arm_state() const {
  using State = spec::connectx::cq_arm_state;
  switch (armed_) {
    case Armed::kNo:
      break;
    case Armed::kSolicited:
      return State::SOLICITED_ARMED;
    case Armed::kAll:
      return State::ARMED;
  }
  return State::FIRED;
}

bool CompletionQueue::has_room() {
  if (attributes_.overrun_ignore || attributes_.collapsed) return true;
  if (((producer_ - known_consumer_) & kCounterMask) < size()) return true;
  const auto consumer = attributes_.record.read(0);
  if (!consumer) return false;
  known_consumer_ = *consumer & kCounterMask;
  return ((producer_ - known_consumer_) & kCounterMask) < size();
}

bool CompletionQueue::write(std::span<std::byte, kCqeSize> cqe, bool solicited) {
  if (failed_) return false;
  if (!has_room()) {
    fail(Syndrome::CQ_OVERRUN, "overrun (PRM 7.12.5)");
    return false;
  }
  const std::uint32_t index = attributes_.collapsed ? 0 : producer_ & (size() - 1);
  // Software owns an entry when its owner bit equals the lap's parity (PRM 7.12.4).
  cqe[kCqeSize - 1] |= std::byte(producer_ >> attributes_.log_size & 1);
  // The 64 bytes of a CQE stand in the second half of a 128-byte entry.
  const auto offset = std::uint64_t{index} * attributes_.stride + attributes_.stride - kCqeSize;
  if (auto* entry = attributes_.buffer.at(offset, kCqeSize)) {
    publish_entry(entry, cqe);
  } else if (!attributes_.buffer.write(offset, cqe)) {
    fail(Syndrome::CQ_ACCESS_VIOLATION_ERROR, "its memory is not mapped");
    return false;
  }
  producer_ = (producer_ + 1) & kCounterMask;
  if (solicited) {
    after_solicited_ = producer_;
    seen_solicited_ = true;
  }
  if (armed_ == Armed::kAll || (armed_ == Armed::kSolicited && solicited)) event();
  return true;
}

void CompletionQueue::handle_arm(std::uint32_t arm_dword) {
  if (failed_) return;
  util::Struct<Record> record;
  util::store_be32(&record.bytes()[Record::arm_ci.kOffset], arm_dword);
  const std::uint32_t consumer = record.get(Record::arm_ci);
  const bool solicited_only = record.get(Record::cmd) != 0;
  // A request for all completions is not weakened by a later one for solicited ones (PRM 7.12.4).
  if (!solicited_only || armed_ == Armed::kNo) {
    armed_ = solicited_only ? Armed::kSolicited : Armed::kAll;
  }
  // "If new CQEs are posted to the CQ after the reporting of a completion event and these CQEs are
  // not yet consumed, then an event will be generated immediately." A CQE that was there at the
  // last event has had its event, even if software arms before it polls.
  const auto since = distance(last_notified_, consumer) > 0 ? last_notified_ : consumer;
  const bool pending = solicited_only ? seen_solicited_ && distance(after_solicited_, since) > 0
                                      : distance(producer_, since) > 0;
  if (pending) event();
}

/// An event is to be reported: at once, or when enough of them or enough time has come together.
void CompletionQueue::event() {
  const auto due = notified_at_ + std::chrono::microseconds(attributes_.period);
  const bool moderated = attributes_.period != 0 && attributes_.max_count != 0;
  const auto completions = (producer_ - last_notified_) & kCounterMask;
  if (!moderated || completions >= attributes_.max_count || due <= moderation_.now()) {
    notify();
  } else if (!held_until_) {
    held_until_ = due;
    moderation_.hold(cqn_, due);
  }
}

void CompletionQueue::report_held_event() {
  assert(held_until_);
  held_until_.reset();
  // The CQ may have failed since.
  if (!failed_) notify();
}

void CompletionQueue::notify() {
  if (held_until_) moderation_.forget(cqn_, *held_until_);
  held_until_.reset();
  armed_ = Armed::kNo;
  last_notified_ = producer_;
  notified_at_ = moderation_.now();
  eqs_.post_completion(attributes_.eqn, cqn_);
}

void CompletionQueue::fail(Syndrome syndrome, const char* reason) {
  failed_ = true;
  eqs_.warn("CQ {:#x} failed: {}", cqn_, reason);
  using Data = spec::connectx::event_data_cq_error;
  util::Struct<Data> data;
  data.set(Data::cqn, cqn_);
  data.set(Data::syndrome, static_cast<std::uint8_t>(syndrome));
  eqs_.post(spec::connectx::event_type::CQ_ERROR, 0, EventQueues::event_data(data));
}

}  // namespace softhca::connectx
