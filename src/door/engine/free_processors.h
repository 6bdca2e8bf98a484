// The load of the processors: one may be free for a thread that polls, or many threads may have to
// share one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "os/unique_fd.h"
#include "util/clock.h"

namespace softhca::door {

/// The number of running or runnable threads in a line of /proc/loadavg (proc(5)), which includes
/// its reader. Nothing: the line is malformed.
std::optional<unsigned> running_threads(std::string_view loadavg);
/// The processors that a cgroup may use, by its cpu.max (Linux, admin-guide/cgroup-v2.rst "CPU
/// Interface Files"), rounded down. Nothing: there is no limit.
std::optional<unsigned> processors_of_quota(std::string_view cpu_max);

/// How long to use a measurement that took `cost`. In containers a program (lxcfs) may provide the
/// file; measuring must stay a small part of the time nevertheless. At most 50 ms: a thread that is
/// preempted while it measures took long as well.
util::Duration pause_after_look(util::Duration cost);

/// The machine's processors and load, as far as this process may use them: from /proc and /sys.
class FreeProcessors {
 public:
  using Clock = util::Time (*)();

  /// `clock` measures what a measurement costs.
  explicit FreeProcessors(Clock clock = util::monotonic_now) : clock_(clock) {}

  /// Reads the files, unless the last measurement is recent.
  void look(util::Time now);

  // As of the last measurement:
  /// Whether a processor is free for the calling thread.
  bool any() const;
  /// Threads per processor of the machine, rounded down, at least 1. A process that may use only
  /// some of the processors may face more, which cannot be measured.
  unsigned crowd() const;

 private:
  Clock clock_;
  os::UniqueFd loadavg_;
  util::Time next_look_{};
  util::Time counted_{};
  unsigned processors_ = 0;          ///< usable by this process
  unsigned all_ = 1;                 ///< all of the machine
  std::optional<unsigned> running_;  ///< threads; nothing: unknown
};

}  // namespace softhca::door
