#include "jingzhao/completion_queues.h"

#include <algorithm>

namespace softhca::jingzhao {

using spec::jingzhao::cq_error_eqe;
using spec::jingzhao::cq_error_syndrome;

CompletionQueues::CompletionQueues(const Parts& parts)
    : parts_(parts),
      contexts_({.icm = &parts.icm, .base = parts.base, .entry_size = limits::kCqcSize},
                parts.cache, this),
      queues_(std::size_t{1} << parts.log_count) {}

CommandResult CompletionQueues::install(Cqn cqn, util::View<Context> context) {
  if (cqn.value() >= queues_.size()) {
    return refuse(Status::BAD_PARAM, "3.2.5.1", "the number is beyond the CQC table");
  }
  if (contains(cqn)) return refuse(Status::BAD_PARAM, "3.2.5.1", "the CQ is installed");
  if (context.get(Context::logsize) > limits::kLogCqSize) {
    return refuse(Status::BAD_PARAM, "3.2.5.1", "logsize is above max_cq_sz");
  }
  const auto made = contexts_.make(cqn.value());
  if (made.bytes == nullptr) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "no ICM is mapped for the CQ context");
  }
  std::ranges::copy(context.bytes(), made.bytes);
  util::MutableView<Context>({made.bytes, Context::kSize}).set(Context::producer_index, 0);
  queues_[cqn.value()] = std::make_unique<Queue>();
  queues_[cqn.value()]->set(kFaulty, static_cast<bool>(parts_.faults));
  ++count_;
  return {};
}

CommandResult CompletionQueues::remove(Cqn cqn) {
  if (!contains(cqn)) return refuse(Status::BAD_PARAM, "3.2.5.2", "no such CQ");
  queues_[cqn.value()].reset();
  --count_;
  // The next CQ with this number has not failed, and neither do its QPs.
  std::erase(failed_, cqn);
  return {};
}

/// The producer counter continues, modulo the new size; the old buffer is not written again. IBTA
/// 11.2.8.3: a CQ that holds more CQEs than the new size stays unchanged.
CommandResult CompletionQueues::resize(Cqn cqn, unsigned log_count, rdma::MKey lkey) {
  if (!contains(cqn)) return refuse(Status::BAD_PARAM, "3.2.5.3", "no such CQ");
  if (log_count > limits::kLogCqSize) {
    return refuse(Status::BAD_PARAM, "3.2.5.3", "logsize is above max_cq_sz");
  }
  auto* queue = find(cqn);
  if (queue == nullptr) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "the ICM of the CQ context is not mapped, or gone");
  }
  const auto places = std::uint32_t{1} << log_count;
  const auto held = static_cast<std::uint32_t>(queue->held ? queue->held->entries().size() : 0);
  const auto is_full = [&] { return held > places || queue->ring.unreturned(places - held); };
  if (places < std::uint32_t{1} << queue->ring.log_count() && is_full()) {
    return refuse(Status::BAD_PARAM, "3.2.5.3", "the CQ holds more CQEs than the new size");
  }
  const auto entry = contexts_.get(cqn.value(), queue->slot);
  const util::MutableView<Context> context({entry.bytes, Context::kSize});
  context.set(Context::logsize, log_count);
  context.set(Context::lkey, lkey.value());
  context.set(Context::producer_index, queue->ring.producer());
  context.set(Context::state_armed, queue->armed());
  contexts_.mark_changed(queue->slot);
  decode(*queue, entry);
  return {};
}

void CompletionQueues::decode(Queue& queue, const IcmCache::Entry& entry) {
  const util::View<Context> context({entry.bytes, Context::kSize});
  const auto log_count = std::min<unsigned>(context.get(Context::logsize), limits::kLogCqSize);
  const auto size = std::uint64_t{OwnedRing::kEntry} << log_count;
  // The document has no usable PD for a CQ.
  queue.ring = OwnedRing(QueueMemory(parts_.keys, rdma::MKey(context.get(Context::lkey)), {}, size),
                         log_count, context.get(Context::producer_index));
  queue.set(kArmed, context.get(Context::state_armed) != 0);
  queue.eqn = Eqn(context.get(Context::comp_eqn));
  queue.brought = entry.brought;
}

void CompletionQueues::update(std::uint32_t index, std::span<std::byte> entry) {
  const auto& queue = queues_[index];
  if (queue == nullptr || queue->brought == IcmCache::kNever) return;
  const util::MutableView<Context> context(entry);
  context.set(Context::producer_index, queue->ring.producer());
  context.set(Context::state_armed, queue->armed());
  context.set(Context::status, static_cast<std::uint32_t>(queue->status));
}

[[gnu::noinline]] void CompletionQueues::post_event(Cqn cqn, Queue& queue) {
  queue.set(kArmed, false);
  util::Struct<EventQueues::Eqe> event;
  event.set(EventQueues::Eqe::number, cqn.value());
  parts_.event_queues.post_to(queue.eqn, EventType::COMP, event);
}

[[gnu::noinline]] bool CompletionQueues::fail(Cqn cqn, Queue& queue, OwnedRing::Written written) {
  queue.set(kFailed, true);
  failed_.push_back(cqn);
  const bool overrun = written == OwnedRing::Written::kFull;
  queue.status =
      overrun ? spec::jingzhao::cq_status::OVERFLOW : spec::jingzhao::cq_status::WRITE_FAIL;
  parts_.notes.warn("CQ {:#x}: {} (CQ_ERROR)", cqn.value(),
                    overrun ? "software owns the next entry" : "its memory is gone");
  util::Struct<EventQueues::Eqe> event;
  const util::MutableView<cq_error_eqe> error(event.bytes());
  error.set(cq_error_eqe::cqn, cqn.value());
  error.set(
      cq_error_eqe::syndrome,
      static_cast<std::uint32_t>(overrun ? cq_error_syndrome::OVERRUN : cq_error_syndrome::ACCESS));
  parts_.event_queues.post(EventType::CQ_ERROR, event);
  return false;
}

/// Raises the event immediately if software still owns the last CQE, as it may not have seen that.
void CompletionQueues::arm(Cqn cqn) {
  if (!contains(cqn)) return;
  auto* queue = find(cqn);
  if (queue == nullptr) return;
  queue->set(kArmed, true);
  if (queue->ring.last_unreturned()) post_event(cqn, *queue);
}

// Fault rules ------------------------------------------------------------------------------------

/// True if the next CQE must wait behind a stall, which a rule may begin with it.
bool CompletionQueues::is_stalled(Cqn cqn, Queue& queue) {
  if (queue.held != nullptr) return true;
  const auto* rule = parts_.faults.take({.action = hca::FaultAction::kStallCq, .cq = cqn.value()});
  if (rule == nullptr) return false;
  queue.held = std::make_unique<HeldCqes>(rule->id);
  return true;
}

bool CompletionQueues::hold_back(Cqn cqn, Queue& queue, const OwnedRing::Entry& entry) {
  const auto places = std::size_t{1} << queue.ring.log_count();
  return queue.held->add(entry, places) || fail(cqn, queue, OwnedRing::Written::kFull);
}

/// Writes what was held back. If the ring has no room, the CQ fails.
void CompletionQueues::release(Cqn cqn, Queue& queue) {
  const auto held = std::move(queue.held);
  for (const auto& entry : held->entries()) {
    const auto fill = [&](OwnedRing::View out) { std::ranges::copy(entry, out.bytes().begin()); };
    if (!write(cqn, fill)) return;
  }
}

void CompletionQueues::follow_fault_rules() {
  for (std::uint32_t number = 0; number != end(); ++number) {
    auto* queue = queues_[number].get();
    if (queue == nullptr) continue;
    queue->set(kFaulty, false);
    if (queue->held != nullptr && !parts_.faults.holds(queue->held->rule())) {
      release(Cqn(number), *queue);
    }
    queue->set(kFaulty, static_cast<bool>(parts_.faults));
  }
}

void CompletionQueues::drop_held(Cqn cqn, Qpn qpn) {
  if (!contains(cqn)) return;
  if (const auto& held = queues_[cqn.value()]->held) held->drop(qpn);
}

std::optional<CompletionQueues::Shown> CompletionQueues::show(Cqn cqn) const {
  if (!contains(cqn)) return std::nullopt;
  const auto& queue = *queues_[cqn.value()];
  return Shown{.cqn = cqn,
               .log_count = queue.ring.log_count(),
               .producer = queue.ring.producer(),
               .eqn = queue.eqn,
               .armed = queue.armed(),
               .failed = queue.failed()};
}

}  // namespace softhca::jingzhao
