#include "peers.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace softhca::bench {

void pin_thread(std::thread::native_handle_type handle, unsigned cpu) {
  if (cpu >= std::thread::hardware_concurrency()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  (void)::pthread_setaffinity_np(handle, sizeof set, &set);
}

void pin_this_thread(unsigned cpu) { pin_thread(::pthread_self(), cpu); }

void MessageRing::send(std::span<const Message> messages) {
  const auto first = produced_.index.load(std::memory_order_relaxed);
  while (first + messages.size() - produced_.others > slots_.size()) {
    produced_.others = consumed_.index.load(std::memory_order_acquire);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    slots_[(first + i) % slots_.size()] = messages[i];
  }
  produced_.index.store(first + messages.size(), std::memory_order_release);
}

std::size_t MessageRing::receive(std::span<Message> out, const std::atomic<bool>& ending) {
  const auto first = consumed_.index.load(std::memory_order_relaxed);
  while (first == consumed_.others) {
    consumed_.others = produced_.index.load(std::memory_order_acquire);
    if (first == consumed_.others) {
      if (ending.load(std::memory_order_relaxed)) return 0;
      relax();
    }
  }
  const auto count = std::min<std::uint64_t>(consumed_.others - first, out.size());
  for (std::size_t i = 0; i < count; ++i) out[i] = slots_[(first + i) % slots_.size()];
  consumed_.index.store(first + count, std::memory_order_release);
  return count;
}

Echo::Echo(unsigned cpu) : thread_([this, cpu] { serve(cpu); }) {}

Echo::~Echo() {
  begin(Mode::kEnd);
  thread_.join();
}

/// Ends what the thread does and starts `mode`. In kRest it sleeps, so that it takes nothing from
/// the measurement.
void Echo::begin(Mode mode) {
  leaving_ = true;
  mode_ = mode;
  mode_.notify_all();
  while (mode != Mode::kEnd && doing_.load() != mode) std::this_thread::yield();
}

void Echo::serve(unsigned cpu) {
  pin_this_thread(cpu);
  for (;;) {
    const auto mode = mode_.load();
    if (mode == Mode::kEnd) return;
    leaving_ = false;
    doing_ = mode;
    if (mode == Mode::kReceive) receive();
    if (mode == Mode::kPingPong) answer();
    mode_.wait(mode);
  }
}

void Echo::receive() {
  std::array<Message, 32> messages;
  while (mode_.load(std::memory_order_relaxed) == Mode::kReceive) {
    const auto count = ring_.receive(messages, leaving_);
    received_.store(received_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }
}

void Echo::send(std::uint64_t n, std::size_t batch) {
  begin(Mode::kReceive);
  const std::vector<Message> messages(batch);
  for (std::uint64_t done = 0; done < n;) {
    const auto count = std::min<std::uint64_t>(batch, n - done);
    ring_.send(std::span(messages).first(count));
    done += count;
  }
  sent_ += n;
  while (received_.load(std::memory_order_acquire) != sent_) relax();
  begin(Mode::kRest);
}

void Echo::answer() {
  auto last = ball_.load(std::memory_order_acquire);
  while (mode_.load(std::memory_order_relaxed) == Mode::kPingPong) {
    // This side waits for odd numbers. The mode is checked only once in many polls.
    for (int looks = 0; looks < 1000; ++looks) {
      last = ball_.load(std::memory_order_acquire);
      if (last % 2 == 1) ball_.store(last + 1, std::memory_order_release);
    }
  }
}

void Echo::ping_pong(std::uint64_t n) {
  begin(Mode::kPingPong);
  for (std::uint64_t i = 0; i < n; ++i) {
    hits_ += 2;
    ball_.store(hits_ - 1, std::memory_order_release);
    while (ball_.load(std::memory_order_acquire) != hits_) {
    }
  }
  begin(Mode::kRest);
}

}  // namespace softhca::bench
