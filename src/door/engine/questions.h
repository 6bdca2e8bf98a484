// Answers the questions of `softhca inspect` to a process about its devices.
#pragma once

#include <poll.h>

#include <optional>
#include <string>

#include "door/control/control_point.h"
#include "door/engine/engine_state.h"
#include "util/clock.h"

namespace softhca::door {

/// Only the thread of the devices uses it, and a forked child.
class Questions {
 public:
  explicit Questions(EngineState& state) : state_(state) {}

  /// Listens in `directory`. If that fails, logs a warning.
  void listen(const std::string& directory);
  /// The descriptor and events for poll(); nothing if the process takes no questions.
  std::optional<pollfd> wanted() const;
  /// poll() has returned an event of `fd`. False: that is another descriptor.
  bool note_event(int fd);
  /// poll() has returned, with or without an event: the time of an asker may be over.
  void note_time();
  /// Whether answer() has something to do.
  bool are_pending() const { return pending_; }
  /// Call without the lock.
  void answer();
  /// In a forked child: closes the parent's socket.
  void leave_to_parent() { control_.reset(); }

 private:
  std::string answer_to(const ControlPoint::Question& question);

  EngineState& state_;
  std::optional<ControlPoint> control_;
  bool pending_ = false;
};

}  // namespace softhca::door
