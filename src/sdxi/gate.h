// What keeps the control thread (the loop that owns the functions of a group) and the worker
// threads of the group apart. A reader and writer lock turned around for readers that come back all
// the time: a worker says by one flag of its own that it is inside; the control thread closes the
// gate and waits until everybody is outside.
//
// Inside, a worker may read registers, tables and mappings, and owns the contexts that it works on.
// While the gate is closed the control thread owns everything.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "pcie/device_threads.h"

namespace softhca::sdxi {

class Gate final : public pcie::DeviceThreads {
 public:
  /// One worker's flag, on a cache line of its own.
  struct alignas(64) Pass {
    std::atomic<bool> inside = false;
  };

  /// A worker that will come; `pass` outlives the gate. From the control thread.
  void admit(Pass& pass) { passes_.push_back(&pass); }

  // Control thread. Closing is nested, and waits at most one turn of a worker.
  void pause() override;
  void resume() override;

  // Workers.
  /// Waits while the gate is closed.
  void enter(Pass& pass);
  void leave(Pass& pass) { pass.inside.store(false, std::memory_order_release); }
  /// Somebody who is inside is waited for, and is to leave soon.
  bool closing() const { return closed_.load(std::memory_order_relaxed) != 0; }

 private:
  std::vector<Pass*> passes_;
  unsigned depth_ = 0;  ///< of pause(); the control thread's
  alignas(64) std::atomic<std::uint32_t> closed_ = 0;
};

}  // namespace softhca::sdxi
