// The threads of a device, as its host sees them: the host pauses them while it changes what they
// use (mappings, configuration space, a reset).
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>

namespace softhca::pcie {

/// All but the overridden functions are called by the loop that owns the function.
class DeviceThreads {
 public:
  virtual ~DeviceThreads() = default;
  /// Returns when no thread of the device uses anything of the host; none will before resume(). May
  /// be nested.
  void pause() {
    if (depth_++ != 0) return;
    if (holding_) {
      held_ = true;
      ++depth_;
    }
    if (stop()) ++stops_;
  }
  void resume() {
    assert(depth_ > 0);
    if (--depth_ == 0) go_on();
  }
  /// Until let_go(), the first pause serves all that follow: the threads do not go on between them.
  void hold() {
    assert(!holding_);
    holding_ = true;
  }
  void let_go() {
    holding_ = false;
    if (std::exchange(held_, false)) resume();
  }
  /// How often pause() has stopped threads. Each time the caller may have waited for them.
  std::uint64_t stops() const { return stops_; }

 private:
  /// Returns when no thread uses anything of the host. False if there is no thread.
  virtual bool stop() = 0;
  /// Ends stop().
  virtual void go_on() = 0;

  unsigned depth_ = 0;    ///< nesting of pause()
  bool holding_ = false;  ///< between hold() and let_go()
  bool held_ = false;     ///< let_go() ends the pause
  std::uint64_t stops_ = 0;
};

/// Pauses the threads while one exists. Null: the device has none.
class Paused {
 public:
  explicit Paused(DeviceThreads* threads) : threads_(threads) {
    if (threads_ != nullptr) threads_->pause();
  }
  ~Paused() {
    if (threads_ != nullptr) threads_->resume();
  }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  DeviceThreads* threads_;
};

/// While one exists, the threads stop at most once. Null: the device has none. Not nested.
class StoppedOnce {
 public:
  explicit StoppedOnce(DeviceThreads* threads)
      : threads_(threads), before_(threads == nullptr ? 0 : threads->stops()) {
    if (threads_ != nullptr) threads_->hold();
  }
  ~StoppedOnce() {
    if (threads_ != nullptr) threads_->let_go();
  }
  StoppedOnce(const StoppedOnce&) = delete;
  StoppedOnce& operator=(const StoppedOnce&) = delete;
  /// True if they have stopped since.
  bool happened() const { return threads_ != nullptr && threads_->stops() != before_; }

 private:
  DeviceThreads* threads_;
  std::uint64_t before_;
};

}  // namespace softhca::pcie
