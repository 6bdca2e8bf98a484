// The thread that drives the devices of a process when no call of the program does.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <vector>

#include "door/engine/engine_state.h"
#include "door/engine/free_processors.h"
#include "door/engine/questions.h"
#include "door/engine/sleep_policy.h"
#include "util/clock.h"
#include "util/result.h"

namespace softhca::door {

class DeviceThread {
 public:
  /// `state` and `questions` live as long as the process. `traps_doorbells`: Engine::Options.
  DeviceThread(EngineState& state, Questions& questions, bool traps_doorbells)
      : state_(state), questions_(questions), traps_doorbells_(traps_doorbells) {}
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  util::Result<void> start();
  /// The thread ends at its next round. Does not wait for that.
  void stop() { stopping_ = true; }

 private:
  void work();
  /// Runs until the process ends.
  void look_after_devices();
  /// One round, until the pace of the wait after it. False: the process ends.
  bool run_round(Pace& pace, util::Time& now);
  /// Spends the time until the next round. `now`: the end of the last one.
  void spend(Pace pace, util::Time now);
  /// Runs a turn: true if there was work. `waits`: nothing is left to do. Call with the lock.
  bool look(bool& waits);
  /// Sleeps until work comes. False: traps cannot be armed, or an event is due soon.
  bool sleep();
  /// True: something has come.
  bool wait(util::Duration longest);
  /// Collects the descriptors for wait(). Call with the lock.
  void collect_wakes();
  SleepPolicy::Load load() const { return {processors_.any(), processors_.crowd()}; }

  EngineState& state_;
  DeviceLock& lock_ = state_.lock();
  ThreadWaker& waker_ = state_.waker();
  Questions& questions_;
  const bool traps_doorbells_;
  std::atomic<bool> stopping_ = false;

  // Only the thread uses these.
  FreeProcessors processors_;
  SleepPolicy policy_{false, {}};   ///< look_after_devices() replaces it
  SleepPolicy::Expected expected_;  ///< as of the last turn
  std::vector<pollfd> wakes_;       ///< eventfds first, then UDP sockets, then other descriptors
  std::size_t eventfds_ = 0;        ///< of these
  std::size_t sockets_end_ = 0;     ///< end of the sockets in wakes_
  util::Time last_chores_{};
  bool host_has_changed_ = false;  ///< the host's addresses may have changed
};

}  // namespace softhca::door
