#include "jingzhao/event_queues.h"

#include <algorithm>
#include <utility>

namespace softhca::jingzhao {

namespace {
constexpr std::uint8_t kLogEqSizeMax = limits::kLogEqSize;
}  // namespace

EventQueues::EventQueues(const Parts& parts)
    : parts_(parts),
      contexts_({.icm = &parts.icm, .base = parts.base, .entry_size = limits::kEqcSize},
                parts.cache, this),
      queues_(std::size_t{1} << parts.log_count) {}

CommandResult EventQueues::install(Eqn eqn, util::View<Context> context) {
  if (eqn.value() >= queues_.size()) {
    return refuse(Status::BAD_PARAM, "3.2.4.2", "the number is beyond the EQC table");
  }
  if (queues_[eqn.value()]) return refuse(Status::BAD_PARAM, "3.2.4.2", "the EQ is installed");
  if (context.get(Context::logsize) > kLogEqSizeMax) {
    return refuse(Status::BAD_PARAM, "3.2.4.2", "logsize is above 13");
  }
  if (context.get(Context::intr) >= parts_.interrupts.vectors()) {
    return refuse(Status::BAD_PARAM, "3.2.4.2", "intr is no MSI-X vector of the device");
  }
  const auto made = contexts_.make(eqn.value());
  if (made.bytes == nullptr) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "no ICM is mapped for the EQ context");
  }
  std::ranges::copy(context.bytes(), made.bytes);
  const util::MutableView<Context> kept({made.bytes, Context::kSize});
  kept.set(Context::owner, 1);
  // The producer starts at the beginning of the ring.
  kept.set(Context::producer_index, 0);
  queues_[eqn.value()].emplace(Queue{});
  return {};
}

CommandResult EventQueues::remove(Eqn eqn) {
  if (!contains(eqn)) return refuse(Status::BAD_PARAM, "3.2.4.3", "no such EQ");
  queues_[eqn.value()].reset();
  for (auto& target : target_) {
    if (target == eqn) target.reset();
  }
  return {};
}

CommandResult EventQueues::map(Eqn eqn, bool unmap, std::uint64_t mask) {
  if (!contains(eqn)) return refuse(Status::BAD_PARAM, "3.2.4.1", "no such EQ");
  for (std::size_t type = 0; type != kTypes; ++type) {
    if ((mask >> type & 1) == 0) continue;  // no format: bit n is event type n
    if (!unmap) {
      target_[type] = eqn;
    } else if (target_[type] == eqn) {
      target_[type].reset();
    }
  }
  return {};
}

void EventQueues::decode(Queue& queue, util::View<Context> context) {
  const auto log_count = std::min<unsigned>(context.get(Context::logsize), kLogEqSizeMax);
  const auto size = std::uint64_t{OwnedRing::kEntry} << log_count;
  const rdma::MKey lkey(context.get(Context::lkey));
  auto memory = context.get(Context::tr) != 0
                    ? QueueMemory(parts_.keys, lkey, rdma::Pd(context.get(Context::pd)), size)
                    : QueueMemory(parts_.keys, context.get(Context::start), size);
  queue.ring = OwnedRing(std::move(memory), log_count, context.get(Context::producer_index));
  queue.armed = context.get(Context::state_armed) != 0;
  queue.vector = static_cast<std::uint8_t>(context.get(Context::intr));
}

EventQueues::Queue* EventQueues::find(Eqn eqn) {
  auto& queue = *queues_[eqn.value()];
  const auto entry = contexts_.get(eqn.value(), queue.slot);
  if (entry.bytes == nullptr) return nullptr;
  if (std::exchange(queue.brought, entry.brought) != entry.brought) {
    decode(queue, util::View<Context>({entry.bytes, Context::kSize}));
  }
  return &queue;
}

void EventQueues::update(std::uint32_t index, std::span<std::byte> entry) {
  const auto& queue = queues_[index];
  if (!queue || queue->brought == 0) return;
  const util::MutableView<Context> context(entry);
  context.set(Context::producer_index, queue->ring.producer());
  context.set(Context::state_armed, queue->armed);
}

void EventQueues::post(EventType type, util::MutableView<Eqe> event) {
  const auto target = target_[static_cast<std::size_t>(type)];
  if (!target) {
    ++counters_.unmapped;
    return;
  }
  post_to(*target, type, event);
}

void EventQueues::post(EventType type, std::uint32_t number) {
  util::Struct<Eqe> event;
  event.set(Eqe::number, number & Eqe::number.kMax);
  post(type, event);
}

void EventQueues::post_to(Eqn eqn, EventType type, util::MutableView<Eqe> event) {
  auto* queue = contains(eqn) ? find(eqn) : nullptr;
  if (queue == nullptr) {
    ++counters_.dropped;
    return parts_.notes.warn("event {}: EQ {:#x} is not there, or its ICM is gone", to_string(type),
                             eqn.value());
  }
  event.set(Eqe::type, static_cast<std::uint32_t>(type));
  const auto fill = [&](const auto& entry) {
    std::ranges::copy(event.bytes(), entry.bytes().begin());
  };
  if (queue->ring.write(fill) != OwnedRing::Written::kYes) {
    ++counters_.dropped;
    return parts_.notes.warn("event {}: EQ {:#x} is full, or its memory is gone", to_string(type),
                             eqn.value());
  }
  ++counters_.posted;
  if (!std::exchange(queue->armed, false)) return;
  const bool completes = type == EventType::COMP;
  raise(*queue, completes ? std::optional(event.get(Eqe::number)) : std::nullopt);
}

void EventQueues::raise(const Queue& queue, std::optional<std::uint32_t> cqn) {
  const auto& faults = parts_.faults;
  if (faults && faults.take({.action = hca::FaultAction::kLoseInterrupt, .cq = cqn}) != nullptr) {
    return;
  }
  parts_.interrupts.raise(queue.vector);
}

/// Interrupts immediately if software still owns the last EQE, as it may not have seen that.
void EventQueues::arm(Eqn eqn) {
  if (!contains(eqn)) return;
  auto* queue = find(eqn);
  if (queue == nullptr) return;
  queue->armed = !queue->ring.last_unreturned();
  if (!queue->armed) raise(*queue);
}

std::optional<EventQueues::Shown> EventQueues::show(Eqn eqn) const {
  if (!contains(eqn)) return std::nullopt;
  const auto& queue = *queues_[eqn.value()];
  return Shown{.eqn = eqn,
               .log_count = queue.ring.log_count(),
               .producer = queue.ring.producer(),
               .armed = queue.armed,
               .vector = queue.vector};
}

}  // namespace softhca::jingzhao
