// A callback of an event loop at a time.
#pragma once

#include <functional>
#include <memory>

#include "util/clock.h"
#include "util/event_loop.h"
#include "util/result.h"

namespace softhca::util {

class Alarm {
 public:
  /// `loop` outlives it.
  static Result<std::unique_ptr<Alarm>> create(EventLoop& loop, std::function<void()> callback);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// Calls back once at `at`, or at once if that has passed; not at a time that was set before.
  /// kNever: not at all.
  void set(Time at);

 private:
  Alarm(EventLoop& loop, std::function<void()> callback)
      : loop_(loop), callback_(std::move(callback)) {}

  EventLoop& loop_;
  std::function<void()> callback_;
  int timer_ = -1;
};

}  // namespace softhca::util
