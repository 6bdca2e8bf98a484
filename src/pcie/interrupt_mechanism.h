// What MSI and MSI-X have in common: vectors that a function raises and somebody masks, and the
// host's interrupt controller at the other end.
#pragma once

#include <cstdint>

#include "pcie/device_threads.h"
#include "util/trace.h"

namespace softhca::pcie {

/// Where interrupts go: a vfio-user client's eventfds, or an in-process driver's counters.
class InterruptSink {
 public:
  virtual ~InterruptSink() = default;
  /// One message of `vector`. Must not call back into the function. A device that has threads of
  /// its own calls it from these too, several at a time.
  virtual void raise(std::uint16_t vector) = 0;
};

/// Who masks a vector.
enum class Masking : std::uint8_t {
  kRegisters,  ///< the capability's own mask bits alone, written by a driver
  kExternal,   ///< set_vector_masked() too; every vector begins masked
};

/// The host's side of MSI or of MSI-X.
class InterruptMechanism {
 public:
  /// The device's own threads that raise interrupts: they pause for every change of what says
  /// whether one is sent, and where to. Null: there are none.
  void set_threads(DeviceThreads* threads) { threads_ = threads; }
  DeviceThreads* threads() const { return threads_; }
  /// Gets each message that is sent; null: nobody does.
  void set_trace(util::Trace* trace) { trace_ = trace; }

  /// Null: interrupts are dropped.
  virtual void set_sink(InterruptSink* sink, Masking masking = Masking::kRegisters) = 0;
  /// Vectors that the function has.
  virtual std::uint16_t vectors() const = 0;
  /// @pre masking is external
  virtual void set_vector_masked(std::uint16_t vector, bool masked) = 0;
  /// Bus Master Enable was written. Messages are memory writes of the function: while it is no bus
  /// master none is sent, and what would be sent is pending (PCIe 5.0 7.5.1.1.3). True at first.
  virtual void set_bus_master(bool enabled) = 0;
  /// As if the device signaled `vector`. One beyond vectors() is dropped.
  virtual void raise(std::uint16_t vector) = 0;
  /// True if raise() would call the sink at once, and change nothing here: then a thread of the
  /// device may call it.
  virtual bool sends(std::uint16_t vector) const = 0;

 protected:
  ~InterruptMechanism() = default;
  util::Trace* trace() const { return trace_; }

 private:
  DeviceThreads* threads_ = nullptr;
  util::Trace* trace_ = nullptr;
};

}  // namespace softhca::pcie
