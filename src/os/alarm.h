// A timer of an event loop that calls back at a set time.
#pragma once

#include <functional>
#include <memory>

#include "os/event_loop.h"
#include "util/clock.h"
#include "util/result.h"

namespace softhca::os {

class Alarm {
 public:
  /// `loop` outlives the alarm.
  static util::Result<std::unique_ptr<Alarm>> create(EventLoop& loop,
                                                     std::function<void()> callback);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// Calls back once at `at`, or immediately if that has passed. Replaces a time set before.
  /// kNever: no call.
  void set(util::Time at);

 private:
  Alarm(EventLoop& loop, std::function<void()> callback)
      : loop_(loop), callback_(std::move(callback)) {}

  EventLoop& loop_;
  std::function<void()> callback_;
  int timer_ = -1;
};

}  // namespace softhca::os
