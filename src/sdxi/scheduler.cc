#include "sdxi/scheduler.h"

namespace softhca::sdxi {

bool Scheduler::assignable(const Context& context) const {
  if (parts_.workers.count() == 0 || context.entry.number == 0 || context.stop.begun) return false;
  if (parts_.faults.armed() || context.stop.hang != 0 || context.execution.injected.any())
    return false;
  const auto& entry = context.entry;
  const auto space = parts_.memory.select(entry.pasid);
  return write_index_of(context) != nullptr && space.place(entry.cxt_sts_ptr, 16) != nullptr &&
         space.place(entry.ds_ring_ptr, entry.ds_ring_sz * spec::kDescriptorSize) != nullptr;
}

const std::uint64_t* Scheduler::write_index_of(const Context& context) const {
  const auto space = parts_.memory.select(context.entry.pasid);
  return space.readable_word(context.entry.write_index_ptr);
}

void Scheduler::enqueue(Context& context) {
  if (context.assigned || context.queued()) return;
  if (!assignable(context)) return keep(context);
  waits_.remove(context);
  parts_.workers.assign(context);
}

void Scheduler::keep(Context& context) {
  if (context.assigned || context.queued()) return;
  waits_.remove(context);
  turns_.push(context);
}

void Scheduler::ring(Context& context) {
  if (context.assigned) return parts_.workers.ring(context);
  enqueue(context);
}

void Scheduler::recall(Context& context) {
  if (!context.assigned) return;
  const pcie::Paused workers_wait(&parts_.workers.gate());
  {
    const std::lock_guard lock(handed_back_mutex_);
    handed_back_.remove(context);
  }
  parts_.workers.withdraw(context);
}

void Scheduler::forget(Context& context) {
  recall(context);
  waits_.remove(context);
}

void Scheduler::hand_back(Context& context) {
  const std::lock_guard lock(handed_back_mutex_);
  const bool first = handed_back_.empty();
  handed_back_.push(context);
  any_handed_back_ = true;
  if (first) parts_.workers.wake_control();
}

void Scheduler::look(util::Time now) {
  if (any_handed_back_) {
    // This thread takes one turn of each context that a worker could not continue.
    const std::lock_guard lock(handed_back_mutex_);
    while (!handed_back_.empty()) {
      auto& context = handed_back_.pop();
      context.assigned = false;
      context.attention.store(Attention::kNobody, std::memory_order_relaxed);
      turns_.push(context);
    }
    any_handed_back_ = false;
  }
  const bool rules_changed = faults_seen_ != parts_.faults.generation();
  faults_seen_ = parts_.faults.generation();
  while (rules_changed ? !waits_.empty() : waits_.next() <= now) enqueue(waits_.pop());
}

}  // namespace softhca::sdxi
