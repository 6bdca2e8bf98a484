// The common part of MSI and MSI-X: vectors that a function raises and the host masks, and the
// interface to the host's interrupt controller.
#pragma once

#include <cstdint>

#include "pcie/device_threads.h"
#include "util/trace.h"

namespace softhca::pcie {

/// The destination of interrupts: a vfio-user client's eventfds, or an in-process driver's
/// counters.
class InterruptSink {
 public:
  virtual ~InterruptSink() = default;
  /// Signals one message of `vector`. Must not call back into the function. A device with its own
  /// threads calls it from these too, concurrently.
  virtual void raise(std::uint16_t vector) = 0;
};

/// How a vector is masked.
enum class Masking : std::uint8_t {
  kRegisters,  ///< only by the capability's mask bits, which a driver writes
  kExternal,   ///< also by set_vector_masked(); initially every vector is masked
};

/// The host's side of MSI or of MSI-X.
class InterruptMechanism {
 public:
  /// The device's own threads that raise interrupts. They pause for every change of whether and
  /// where an interrupt is sent. Null if there are none.
  void set_threads(DeviceThreads* threads) { threads_ = threads; }
  DeviceThreads* threads() const { return threads_; }
  /// Records each message that is sent; null: no trace.
  void set_trace(util::Trace* trace) { trace_ = trace; }

  /// Null: interrupts are dropped.
  virtual void set_sink(InterruptSink* sink, Masking masking = Masking::kRegisters) = 0;
  /// Number of vectors of the function.
  virtual std::uint16_t vectors() const = 0;
  /// @pre masking is external
  virtual void set_vector_masked(std::uint16_t vector, bool masked) = 0;
  /// Called when Bus Master Enable was written. Messages are memory writes of the function: while
  /// it is no bus master, they become pending instead (PCIe 5.0 7.5.1.1.3). Initially true.
  virtual void set_bus_master(bool enabled) = 0;
  /// The device signals `vector`. A vector beyond vectors() is dropped.
  virtual void raise(std::uint16_t vector) = 0;
  /// True if raise() would call the sink immediately, without changing anything here: then a thread
  /// of the device may call it.
  virtual bool sends(std::uint16_t vector) const = 0;

 protected:
  ~InterruptMechanism() = default;
  util::Trace* trace() const { return trace_; }

 private:
  DeviceThreads* threads_ = nullptr;
  util::Trace* trace_ = nullptr;
};

}  // namespace softhca::pcie
