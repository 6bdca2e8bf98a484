// A device that works in threads of its own, as its host sees it: they can be made to pause while
// the host changes what they use (mappings, configuration space, a reset).
#pragma once

namespace softhca::pcie {

class DeviceThreads {
 public:
  virtual ~DeviceThreads() = default;
  /// Returns when no thread of the device uses anything of the host's any more, and none will
  /// before resume(). From the loop that owns the function; may be nested.
  virtual void pause() = 0;
  virtual void resume() = 0;
};

/// The threads pause while one exists. Null: the device has none.
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
