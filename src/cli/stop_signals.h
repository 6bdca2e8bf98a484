// Ctrl-C and SIGTERM for a command that cleans up before it ends.
#pragma once

#include <csignal>

#include "util/clock.h"
#include "util/result.h"

namespace softhca::cli {

/// While one exists, SIGINT and SIGTERM are recorded instead of ending the process, even if
/// blocked. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Fails if there was no descriptor for wait().
  static util::Result<void> check();
  static bool seen() { return seen_ != 0; }
  /// Waits until poll(2) reports `events` of `fd`, a signal comes, or `until`. False after a
  /// signal, also if it came before the call.
  static bool wait(int fd, short events, util::Time until = util::kNever);

 private:
  static void record(int signal);

  static inline volatile std::sig_atomic_t seen_ = 0;
  /// An eventfd, readable after a signal, whichever thread handled it.
  static inline int wake_ = -1;

  struct sigaction interrupt_{};
  struct sigaction terminate_{};
  sigset_t blocked_{};
};

}  // namespace softhca::cli
