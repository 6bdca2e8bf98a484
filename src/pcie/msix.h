// MSI-X: the table and pending bit array in a BAR, and the way to the host's interrupt controller.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::pcie {

/// Where interrupts go: a vfio-user client's eventfds, or an in-process driver's counters.
class InterruptSink {
 public:
  virtual ~InterruptSink() = default;
  /// One message of `vector`. Must not call back into the function.
  virtual void raise(std::uint16_t vector) = 0;
};

class Msix {
 public:
  struct Layout {
    std::uint16_t vectors;       ///< 1 to 2048
    std::uint8_t bar;            ///< where table and PBA live
    std::uint32_t table_offset;  ///< bytes, 8-aligned
    std::uint32_t pba_offset;    ///< bytes, 8-aligned
  };

  /// Null: interrupts are dropped.
  void set_sink(InterruptSink* sink);

  /// The device signals `vector`: goes to the sink if MSI-X is enabled and neither the function nor the vector is masked;
  /// stays pending in the PBA if masked, and is sent on unmask (PCIe 6.1.4.5). A vector beyond
  /// the table is dropped.
  void raise(std::uint16_t vector);
};

}  // namespace softhca::pcie
