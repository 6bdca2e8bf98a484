// How a thread spends its time. A wait for a processor shows how busy the machine is, and nothing
// about softhca.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

/// How long a thread has run, and how long it has waited for a processor, in nanoseconds. All zero
/// if the kernel has no schedstat.
struct Schedule {
  std::int64_t runs = 0, waits = 0;

  /// `thread`: its directory in /proc.
  static Schedule of(const std::filesystem::path& thread) {
    Schedule out;
    std::ifstream(thread / "schedstat") >> out.runs >> out.waits;
    return out;
  }
};

inline std::filesystem::path own_thread() {
  return "/proc/self/task/" + std::to_string(::gettid());
}

/// The time since this object was made, as one thread has spent it.
class Spell {
 public:
  explicit Spell(std::filesystem::path thread) : thread_(std::move(thread)) {}

  std::chrono::nanoseconds all() const { return std::chrono::steady_clock::now() - begin_; }
  /// Without the time in which it waited for a processor.
  std::chrono::nanoseconds undisturbed() const {
    const auto now = Schedule::of(thread_);
    return std::max(all() - std::chrono::nanoseconds(now.waits - before_.waits), kNone);
  }
  /// It waited for something else than a processor. All of the time if there is no schedstat.
  std::chrono::nanoseconds asleep() const {
    const auto now = Schedule::of(thread_);
    const auto awake = now.runs - before_.runs + now.waits - before_.waits;
    return std::max(all() - std::chrono::nanoseconds(awake), kNone);
  }

 private:
  static constexpr std::chrono::nanoseconds kNone{0};
  const std::filesystem::path thread_;
  const Schedule before_ = Schedule::of(thread_);
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};
