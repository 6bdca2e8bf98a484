// The threads of a device, as its host sees them: the host pauses them while it changes what they
// use (mappings, configuration space, a reset).
#pragma once

namespace softhca::pcie {

class DeviceThreads {
 public:
  virtual ~DeviceThreads() = default;
  /// Returns when no thread of the device uses anything of the host; none will before resume().
  /// Called by the loop that owns the function; may be nested.
  virtual void pause() = 0;
  virtual void resume() = 0;
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

}  // namespace softhca::pcie
