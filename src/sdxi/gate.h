// Excludes the control thread (the loop that owns the functions of a group) and the group's worker
// threads from each other. It is a reader-writer lock for readers that enter and leave all the
// time: each worker sets only its own flag while it is inside. The control thread closes the gate
// and waits until every worker is outside.
//
// Inside, a worker may read registers, tables and mappings, and owns the contexts that it works on.
// While the gate is closed, the control thread owns everything.
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

  /// Registers a worker before its first enter(); `pass` outlives the gate. Control thread only.
  void admit(Pass& pass) { passes_.push_back(&pass); }

  // Workers.
  /// Waits while the gate is closed.
  void enter(Pass& pass);
  void leave(Pass& pass) { pass.inside.store(false, std::memory_order_release); }
  /// True if the control thread waits: workers inside must leave soon.
  bool closing() const { return closed_.load(std::memory_order_relaxed) != 0; }

 private:
  // Control thread: pause() closes, and waits for at most one turn of each worker; resume() opens.
  bool stop() override;
  void go_on() override;

  std::vector<Pass*> passes_;
  alignas(64) std::atomic<std::uint32_t> closed_ = 0;
};

}  // namespace softhca::sdxi
