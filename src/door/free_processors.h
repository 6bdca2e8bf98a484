// How many processors there are for the threads that run: one more may be free for one that does
// not sleep, or many threads may have to share one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "util/clock.h"
#include "vfio_user/unique_fd.h"

namespace softhca::door {

/// The threads that run or could run, of /proc/loadavg (proc(5)), which counts who reads it.
/// Nothing: it is no such line.
std::optional<unsigned> running_threads(std::string_view loadavg);
/// The processors that a cgroup may use, of its cpu.max (Linux, admin-guide/cgroup-v2.rst "CPU
/// Interface Files"), rounded down. Nothing: as many as there are.
std::optional<unsigned> processors_of_quota(std::string_view cpu_max);

/// How long a look serves that took `cost`: in containers a program of its own (lxcfs) may be the
/// file, and looks are a small part of the time all the same.
util::Duration pause_after_look(util::Duration cost);

/// Of the machine, as far as this process may use it: of /proc and /sys.
class FreeProcessors {
 public:
  /// Reads files, unless it has just done so.
  void look(util::Time now);

  // As of the last look:
  /// One is free, for the thread that has looked.
  bool any() const;
  /// Threads of the machine for each of its processors, rounded down, and 1 at least. Where this
  /// process may use a part of them it may be more crowded there, which nothing tells.
  unsigned crowd() const;

 private:
  vfio_user::UniqueFd loadavg_;
  util::Time next_look_{};
  util::Time counted_{};
  unsigned processors_ = 0;          ///< that this process may use
  unsigned all_ = 1;                 ///< of the machine
  std::optional<unsigned> running_;  ///< threads; nothing: nobody tells
};

}  // namespace softhca::door
