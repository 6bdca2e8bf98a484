#include "connectx/event/event_queue.h"

#include <algorithm>
#include <utility>

namespace softhca::connectx {

using spec::connectx::event_type;
using EqeLayout = spec::connectx::eqe;

namespace {

static_assert(kEqeSize == EqeLayout::kSize);
/// The counters of an EQ are as wide as those in the doorbell.
using EqDoorbell = spec::connectx::eq_doorbell_register;
using QueueType = spec::connectx::event_queue_type;

bool failed(const EventQueue& eq) { return eq.status() != spec::connectx::eq_status::OK; }

/// The CQ of a completion event. Nothing for other events.
std::optional<std::uint32_t> completion_of(std::uint8_t type, const EventData& data) {
  using Data = spec::connectx::event_data_completion;
  if (type != 0) return std::nullopt;
  return static_cast<std::uint32_t>(util::View<Data>(data).get(Data::cqn));
}

EventData queue_event(std::uint32_t number, QueueType type) {
  using Data = spec::connectx::event_data_qp_srq;
  util::Struct<Data> data;
  data.set(Data::type, static_cast<std::uint32_t>(type));
  data.set(Data::qp_srq_n, number);
  return EventQueues::event_data(data);
}

}  // namespace

EventQueue::EventQueue(Eqn eqn, Attributes attributes, pcie::Msix& msix, const EventQueues& all)
    : eqn_(eqn),
      attributes_(std::move(attributes)),
      ring_({.log_count = attributes_.log_size,
             .stride = kEqeSize,
             .counter_bits = EqDoorbell::consumer_index.kWidth,
             .overrun_ignore = attributes_.overrun_ignore},
            std::move(attributes_.queue.memory)),
      msix_(msix),
      all_(all) {}

bool EventQueue::post(std::uint8_t event_type, std::uint8_t sub_type, const EventData& data) {
  if (failed_ || ring_.full()) return false;
  util::Struct<EqeLayout> eqe;
  eqe.set(EqeLayout::event_type, event_type);
  eqe.set(EqeLayout::event_sub_type, sub_type);
  std::copy(data.begin(), data.end(), eqe.sub(EqeLayout::event_data).begin());
  // Software owns an entry when its owner bit equals the lap's parity (PRM 7.13.3).
  eqe.set(EqeLayout::owner, ring_.lap());
  failed_ = !ring_.publish(eqe.bytes());
  if (failed_) return false;
  if (armed_) raise(completion_of(event_type, data));
  return true;
}

void EventQueue::handle_doorbell(std::uint32_t consumer, bool arm) {
  ring_.set_consumer(consumer);
  if (!arm || failed_) return;
  armed_ = true;
  if (ring_.consumer() != ring_.producer()) raise();
}

spec::connectx::eq_status EventQueue::status() const {
  using spec::connectx::eq_status;
  return failed_ ? eq_status::EQ_WRITE_FAILURE : eq_status::OK;
}

void EventQueue::raise(std::optional<std::uint32_t> cqn) {
  armed_ = false;
  if (!all_.loses_interrupt(cqn)) msix_.raise(attributes_.vector);
}

bool EventQueues::loses_interrupt(std::optional<std::uint32_t> cqn) const {
  return faults() &&
         faults().take({.action = hca::FaultAction::kLoseInterrupt, .cq = cqn}) != nullptr;
}

EventQueue* EventQueues::create(EventQueue::Attributes attributes) {
  const auto events = attributes.events;
  auto* eq = table_.emplace(std::move(attributes), msix_, *this);
  if (eq == nullptr) return nullptr;
  // The event types of a new EQ are no longer mapped to their earlier EQs (PRM CREATE_EQ).
  for (std::size_t type = 0; type < events.size(); ++type) {
    if (events[type]) owner_[type] = eq->eqn();
  }
  return eq;
}

void EventQueues::destroy(Eqn eqn) {
  std::ranges::replace(owner_, std::optional(eqn), std::optional<Eqn>());
  table_.erase(eqn);
}

inline void EventQueues::note(Eqn eqn, std::string_view type, std::uint32_t cqn) {
  if (trace_ == nullptr) return;
  trace_->note(util::TraceStep::kEvent, type, {{"eqn", eqn.value()}, {"cqn", cqn}});
}

void EventQueues::post(event_type type, std::uint8_t sub_type, const EventData& data) {
  const auto eqn = mapped(type);
  if (!eqn) return;
  auto& eq = *table_.find(*eqn);
  note(*eqn, to_string(type), 0);
  if (eq.post(static_cast<std::uint8_t>(type), sub_type, data)) return;
  lost(eq, to_string(type));
  if (!failed(eq)) health_.report(Health::Syndrome::ASYNCHRONOUS_EQ_BUF_OVERRUN);
}

void EventQueues::post_completion(Eqn eqn, Cqn cqn) {
  using Data = spec::connectx::event_data_completion;
  util::Struct<Data> data;
  data.set(Data::cqn, cqn.value());
  auto& eq = *table_.find(eqn);
  note(eqn, "COMPLETION", cqn.value());
  if (!eq.post(0, 0, event_data(data))) lost(eq, "COMPLETION");
}

void EventQueues::lost(const EventQueue& eq, std::string_view type) {
  if (failed(eq)) health_.report(Health::Syndrome::EQ_IN_ERR);
  notes_.warn("EQ {:#x} lost a {} event: {} (PRM Table 94)", eq.eqn().value(), type,
              failed(eq) ? "it cannot be written" : "it is full");
}

EventData EventQueues::queue_data(Qpn qpn) { return queue_event(qpn.value(), QueueType::QP); }
EventData EventQueues::queue_data(Srqn srqn) { return queue_event(srqn.value(), QueueType::QP); }
EventData EventQueues::queue_data(Sqn sqn) { return queue_event(sqn.value(), QueueType::SQ); }
EventData EventQueues::dct_data(Qpn dctn) {
  using Data = spec::connectx::event_data_dct;
  util::Struct<Data> data;
  data.set(Data::dctn, dctn.value());
  return event_data(data);
}
EventData EventQueues::queue_data(Rqn rqn) { return queue_event(rqn.value(), QueueType::RQ); }

}  // namespace softhca::connectx
