#include "connectx/event/event_queue.h"

#include <algorithm>
#include <utility>

namespace softhca::connectx {

using spec::connectx::event_type;
using Eqe = spec::connectx::eqe;

namespace {

static_assert(kEqeSize == Eqe::kSize);
/// Counters of an EQ have as many bits as the doorbell has for them.
constexpr std::uint32_t kCounterMask = spec::connectx::eq_doorbell_register::consumer_index.kMax;

}  // namespace

EventQueue::EventQueue(std::uint32_t eqn, Attributes attributes, pcie::Msix& msix)
    : eqn_(eqn), attributes_(std::move(attributes)), msix_(msix) {}

bool EventQueue::post(std::uint8_t event_type, std::uint8_t sub_type, const EventData& data) {
  if (((producer_ - consumer_) & kCounterMask) >= size() && !attributes_.overrun_ignore)
    return false;
  util::Struct<Eqe> eqe;
  eqe.set(Eqe::event_type, event_type);
  eqe.set(Eqe::event_sub_type, sub_type);
  std::copy(data.begin(), data.end(), eqe.sub(Eqe::event_data).begin());
  // Software owns an entry when its owner bit equals the lap's parity (PRM 7.13.3).
  eqe.set(Eqe::owner, producer_ >> attributes_.log_size & 1);

  const std::uint64_t offset = std::uint64_t{producer_ & (size() - 1)} * kEqeSize;
  if (auto* entry = attributes_.buffer.at(offset, kEqeSize)) {
    publish_entry(entry, eqe.bytes());
  } else if (!attributes_.buffer.write(offset, eqe.bytes())) {
    return false;
  }
  producer_ = (producer_ + 1) & kCounterMask;
  if (armed_) raise();
  return true;
}

void EventQueue::handle_doorbell(std::uint32_t consumer, bool arm) {
  consumer_ = consumer & kCounterMask;
  if (!arm) return;
  armed_ = true;
  if (consumer_ != producer_) raise();
}

void EventQueue::raise() {
  armed_ = false;
  msix_.raise(attributes_.vector);
}

EventQueue* EventQueues::create(EventQueue::Attributes attributes) {
  const auto events = attributes.events;
  auto* eq = table_.emplace(std::move(attributes), msix_);
  if (eq == nullptr) return nullptr;
  // An event type moves here from the EQ that had it (PRM CREATE_EQ).
  for (std::size_t type = 0; type < events.size(); ++type) {
    if (events[type]) owner_[type] = eq->eqn();
  }
  return eq;
}

void EventQueues::destroy(std::uint32_t eqn) {
  std::replace(owner_.begin(), owner_.end(), eqn, kNone);
  table_.erase(eqn);
}

void EventQueues::post(event_type type, std::uint8_t sub_type, const EventData& data) {
  const auto eqn = owner_[static_cast<std::uint8_t>(type)];
  auto* eq = eqn == kNone ? nullptr : table_.find(eqn);
  if (eq == nullptr) return;
  if (!eq->post(static_cast<std::uint8_t>(type), sub_type, data)) {
    warn("EQ {:#x} lost a {} event: queue full or unreadable (PRM 7.13.11)", eqn, to_string(type));
  }
}

void EventQueues::post_completion(std::uint32_t eqn, std::uint32_t cqn) {
  auto* eq = table_.find(eqn);
  if (eq == nullptr) return;
  using Data = spec::connectx::event_data_completion;
  util::Struct<Data> data;
  data.set(Data::cqn, cqn);
  if (!eq->post(0, 0, event_data(data))) {
    warn("EQ {:#x} lost a completion event of CQ {:#x}: queue full or unreadable (PRM 7.13.11)",
         eqn, cqn);
  }
}

EventData EventQueues::queue_data(std::uint32_t number, std::uint32_t type) {
  using Data = spec::connectx::event_data_qp_srq;
  util::Struct<Data> data;
  data.set(Data::type, type);
  data.set(Data::qp_srq_n, number);
  return event_data(data);
}

}  // namespace softhca::connectx
