#include "sdxi/workers.h"

#include <pthread.h>

#include <algorithm>
#include <cassert>

#include "sdxi/spin.h"

namespace softhca::sdxi {
namespace {

/// Rings that one worker polls at a time; further rings wait for their doorbells.
constexpr std::size_t kWatchedMax = 64;
/// Polls of rings between two reads of the clock.
constexpr unsigned kLooksPerTime = 32;
/// Bytes from which a copy is shared, and from which it wakes sleeping workers.
constexpr std::uint64_t kSharedFrom = 2 * SharedCopy::kChunk;
constexpr std::uint64_t kWakesFrom = std::uint64_t{1} << 20;
/// Bytes of a shared copy per turn while nothing else waits: as much as some dozens of consecutive
/// turns. Then the context's state is read again.
constexpr std::uint64_t kSharedAtOnce = std::uint64_t{16} << 20;
/// A longer pause is slept, not spun.
constexpr auto kSleepFrom = std::chrono::microseconds(20);

std::uint64_t load(const std::uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/// SDXI 5.6: software must not request overlapping buffers. One worker copies them from the start.
bool overlap(const SharedCopy::Buffers& buffers) {
  const auto to = reinterpret_cast<std::uintptr_t>(buffers.to);
  const auto from = reinterpret_cast<std::uintptr_t>(buffers.from);
  return to < from + buffers.size && from < to + buffers.size;
}

}  // namespace

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    assert(queue_.empty());
    ending_ = true;
    while (!sleeping_.empty()) wake_one();
  }
  for (auto& worker : threads_) worker->thread.join();
}

void Workers::start(unsigned count) {
  while (threads_.size() < std::min(count, kMax)) {
    auto& worker = *threads_.emplace_back(std::make_unique<Worker>());
    worker.state.worker = true;
    worker.state.pool = this;
    worker.watched.reserve(kWatchedMax);
    gate_.admit(worker.pass);
    worker.thread = std::thread([this, &worker] { serve(worker); });
    ++count_;
  }
}

void Workers::assign(Context& context) {
  assert(count() > 0 && !context.assigned);
  context.assigned = true;
  context.attention.store(Attention::kWorker, std::memory_order_relaxed);
  push(context);
}

void Workers::withdraw(Context& context) {
  assert(context.assigned);
  {
    const std::lock_guard lock(mutex_);
    queue_.remove(context);
    queued_ = !queue_.empty();
  }
  for (auto& worker : threads_) {
    if (worker->current == &context) worker->current = nullptr;
    std::erase_if(worker->watched, [&](const Watch& w) { return w.context == &context; });
  }
  context.assigned = false;
  context.attention.store(Attention::kNobody, std::memory_order_relaxed);
}

void Workers::push(Context& context) {
  const std::lock_guard lock(mutex_);
  queue_.push(context);
  queued_ = true;
  wake_one();
}

void Workers::serve(Worker& self) {
  const pcie::LocalMemoryOnly local;
  // Only its own name: naming another thread needs a file, which may not exist.
  ::pthread_setname_np(::pthread_self(), "sdxi-worker");
  while (!ending_.load(std::memory_order_relaxed)) {
    gate_.enter(self.pass);
    const auto until = attend(self);
    gate_.leave(self.pass);
    if (until != util::Time::min()) sleep(self, until);
  }
}

void Workers::sleep(Worker& self, util::Time until) {
  std::unique_lock lock(mutex_);
  if (!queue_.empty() || ending_ || rouses_ != self.rouses) return;
  self.woken = self.helps = false;
  sleeping_.push_back(&self);
  any_sleeps_ = true;
  const auto woken = [&self] { return self.woken; };
  if (until == util::kNever) {
    ++at_rest_;
    self.wakeup.wait(lock, woken);
    --at_rest_;
  } else if (!self.wakeup.wait_for(lock, until - clock_(), woken)) {
    std::erase(sleeping_, &self);
    any_sleeps_ = !sleeping_.empty();
  }
  if (self.helps) self.helps_until = clock_() + patience_;
}

/// Wakes a worker that sleeps, if there is one. @pre mutex_ is held
void Workers::wake_one(bool to_help) {
  if (sleeping_.empty()) return;
  auto& worker = *sleeping_.back();
  sleeping_.pop_back();
  any_sleeps_ = !sleeping_.empty();
  worker.woken = true;
  worker.helps = to_help;
  worker.wakeup.notify_one();
}

/// From now on a doorbell wakes this worker from a pause for a valid bit. False if one came before.
bool Workers::lie_down(Worker& self) {
  self.rouses = rouses_;
  for (const auto& watch : self.watched) {
    auto expected = Attention::kWorker;
    if (!watch.context->attention.compare_exchange_strong(expected, Attention::kAsleep)) {
      if (expected == Attention::kRung) return false;
    }
  }
  return true;
}

void Workers::get_up(Worker& self) {
  for (const auto& watch : self.watched) {
    auto expected = Attention::kAsleep;
    watch.context->attention.compare_exchange_strong(expected, Attention::kWorker);
  }
}

void Workers::rouse() {
  const std::lock_guard lock(mutex_);
  ++rouses_;
  while (!sleeping_.empty()) wake_one();
}

void Workers::ask_for_help() {
  const std::lock_guard lock(mutex_);
  wake_one(true);
}

std::uint64_t Workers::copy_together(SharedCopy::Buffers buffers, std::uint64_t turn,
                                     const ThreadState& thread) {
  // A worker that polls other rings looks at them after each turn.
  buffers.size = std::min(buffers.size, thread.watches ? turn : std::max(turn, kSharedAtOnce));
  if (count() < 2 || buffers.size < kSharedFrom) return 0;
  if (overlap(buffers) || !shared_.open(buffers)) return 0;
  if (buffers.size >= kWakesFrom && any_sleeps_.load(std::memory_order_relaxed)) ask_for_help();
  while (shared_.copy_next() != 0) {
    if (wanted() && shared_.taken() >= turn) break;
  }
  return shared_.close();
}

util::Time Workers::attend(Worker& self) {
  refresh(self);
  get_up(self);
  auto now = clock_();
  for (unsigned looks = 0; !gate_.closing() && !ending_.load(std::memory_order_relaxed); ++looks) {
    if (auto* context = next(self)) {
      take_turn(self, *context);
      // Polled contexts that became busy meanwhile join the queue.
      if (!self.watched.empty()) look(self, now);
      continue;
    }
    if (shared_.copy_next() != 0) {
      now = clock_();
      self.helps_until = now + patience_;
      look(self, now);
      continue;
    }
    if (looks % kLooksPerTime == 0) {
      now = clock_();
      const auto then = now < self.helps_until ? now : next_look(self);
      if (then > now + kSleepFrom && lie_down(self)) return then;
    }
    look(self, now);
    relax();
  }
  return util::Time::min();
}

/// The context whose turn it is: first come, first served; the one that has just had a turn is
/// last.
Context* Workers::next(Worker& self) {
  auto* context = self.current;
  self.current = nullptr;
  if (!queued_.load(std::memory_order_relaxed)) return context;
  const std::lock_guard lock(mutex_);
  if (context != nullptr) {
    if (queue_.empty()) return context;
    queue_.push(*context);
    wake_one();
  } else if (queue_.empty()) {
    return nullptr;
  }
  context = &queue_.pop();
  queued_ = !queue_.empty();
  return context;
}

void Workers::take_turn(Worker& self, Context& context) {
  self.state.watches = !self.watched.empty();
  const auto turn = context.home.take_worker_turn(context, self.state);
  switch (turn) {
    case Turn::kAgain:
      self.current = &context;
      return;
    case Turn::kHeld:
    case Turn::kWaitOthers:
      assert(false && "faults and administration are the control thread's");
      return;
    case Turn::kHandBack:
      context.home.hand_back(context);
      return;
    case Turn::kWaitValid:
      self.watched.push_back({&context, nullptr, clock_() + context.valid_pause});
      break;
    case Turn::kIdle: {
      const auto* write_index = context.home.write_index_of(context);
      if (write_index == nullptr) {
        context.home.hand_back(context);
        return;
      }
      self.watched.push_back({&context, write_index, clock_() + patience_});
      break;
    }
  }
  if (self.watched.size() < kWatchedMax) return;
  const auto oldest = self.watched.front();
  self.watched.erase(self.watched.begin());
  if (oldest.write_index == nullptr || !put_down(*oldest.context, oldest.write_index)) {
    offer(self, *oldest.context);
  }
}

/// Queues polled contexts that have work now, and drops those that had none for long.
void Workers::look(Worker& self, util::Time now) {
  auto& watched = self.watched;
  for (std::size_t i = 0; i < watched.size();) {
    const auto [context, write_index, until] = watched[i];
    bool work = false;
    if (write_index == nullptr) {
      // SDXI 5.3 step 3: a doorbell ends the pause.
      work = until <= now || context->attention.load(std::memory_order_relaxed) == Attention::kRung;
      if (work) context->attention.exchange(Attention::kWorker);
    } else {
      work = load(write_index) != context->read_index;
      if (!work && until > now) {
        ++i;
        continue;
      }
      if (!work) work = !put_down(*context, write_index);
      if (!work) {
        watched.erase(watched.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
    }
    if (!work) {
      ++i;
      continue;
    }
    watched.erase(watched.begin() + static_cast<std::ptrdiff_t>(i));
    offer(self, *context);
  }
}

/// Gives this worker's next turn to a context with work; queues it if another has that turn.
void Workers::offer(Worker& self, Context& context) {
  if (self.current == nullptr) {
    self.current = &context;
  } else {
    push(context);
  }
}

/// Stops polling the ring: from now on a doorbell is needed. False if there is work after all, and
/// this worker must take it.
bool Workers::put_down(Context& context, const std::uint64_t* write_index) {
  const auto read_index = context.read_index;
  // A producer writes Write_Index and then the doorbell: either it finds kNobody, or this worker
  // finds its Write_Index.
  context.attention.exchange(Attention::kNobody);
  if (load(write_index) == read_index) return true;
  auto expected = Attention::kNobody;
  return !context.attention.compare_exchange_strong(expected, Attention::kWorker);
}

util::Time Workers::next_look(const Worker& self) {
  auto next = util::kNever;
  for (const auto& watch : self.watched) {
    if (watch.write_index != nullptr) return util::Time::min();
    next = std::min(next, watch.until);
  }
  return next;
}

/// Mappings may have changed while the gate was closed.
void Workers::refresh(Worker& self) {
  std::erase_if(self.watched, [](Watch& watch) {
    if (watch.write_index == nullptr) return false;
    watch.write_index = watch.context->home.write_index_of(*watch.context);
    if (watch.write_index != nullptr) return false;
    watch.context->home.hand_back(*watch.context);
    return true;
  });
}

}  // namespace softhca::sdxi
