// Whether one thread more may run all the time and keep no other from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "util/clock.h"

namespace softhca::door {

/// The threads that run or could run, of /proc/loadavg (proc(5)), which counts who reads it.
/// Nothing: it is no such line.
std::optional<unsigned> running_threads(std::string_view loadavg);
/// The processors that a cgroup may use, of its cpu.max (Linux, admin-guide/cgroup-v2.rst "CPU
/// Interface Files"), rounded down. Nothing: as many as there are.
std::optional<unsigned> processors_of_quota(std::string_view cpu_max);

/// Of the machine, as far as this process may use it. Looks at files of /proc and /sys, and keeps
/// what it has found for a moment.
class FreeProcessors {
 public:
  /// For the thread that asks.
  bool any(util::Time now);

 private:
  bool look();

  util::Time looked_{};
  util::Time counted_{};
  unsigned processors_ = 0;  ///< that this process may use
  bool any_ = false;
};

}  // namespace softhca::door
