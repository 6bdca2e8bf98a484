// MSI with 64-bit addresses and per-vector masking: up to 32 vectors, whose registers are all in
// config space (PCIe 5.0 7.7.1). Masked vectors are pending until they are unmasked.
#pragma once

#include <cstdint>

#include "pcie/interrupt_mechanism.h"

namespace softhca::pcie {

class Msi final : public InterruptMechanism {
 public:
  static constexpr std::uint16_t kMaxVectors = 32;

  /// The capability's registers that the host can write.
  struct MessageControl {
    bool enabled = false;
    std::uint8_t multiple_message_enable = 0;  ///< log2 of the vectors that software allocated
    std::uint32_t mask_bits = 0;
  };

  /// `vectors`: a power of two up to 32.
  explicit Msi(std::uint16_t vectors);

  void set_sink(InterruptSink* sink, Masking masking) override;
  std::uint16_t vectors() const override { return vectors_; }

  /// Signals `vector`: dropped while MSI is disabled, pending while the vector is masked or the
  /// function is no bus master. A function must not use more vectors than software allocated (PCIe
  /// 5.0 6.1.4.1): vectors beyond are dropped.
  void raise(std::uint16_t vector) override;
  bool sends(std::uint16_t vector) const override;
  void set_vector_masked(std::uint16_t vector, bool masked) override;
  void set_bus_master(bool enabled) override;

  /// Called when the capability's registers were written.
  void set_control(const MessageControl& control);
  bool enabled() const { return control_.enabled; }
  /// Vectors that software allocated (Multiple Message Enable, PCIe 5.0 7.7.1.2).
  std::uint16_t allocated() const;
  /// Pending Bits (PCIe 5.0 7.7.1.8).
  std::uint32_t pending() const { return pending_; }

  /// Restores the power-on state. The sink and its external masks belong to the host and do not
  /// change.
  void reset();

 private:
  void send(std::uint16_t vector);
  /// Vectors whose messages must be held.
  std::uint32_t masked() const;
  /// Sends pending messages that are no longer masked (PCIe 5.0 6.1.4.5).
  void send_pending();

  std::uint16_t vectors_;
  InterruptSink* sink_ = nullptr;
  MessageControl control_;
  std::uint32_t pending_ = 0;
  std::uint32_t externally_masked_ = 0;
  bool bus_master_ = true;
};

}  // namespace softhca::pcie
