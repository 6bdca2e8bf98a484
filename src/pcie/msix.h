// MSI-X: the table and pending bit array in a BAR, and the way to the host's interrupt controller.
//
// Who masks a vector depends on who is at the other end. An in-process driver writes the MSI-X
// table, as hardware expects. A vfio-user client keeps the table for itself and says by messages
// which vectors may be sent; it is an external masker. The pending bits are ours in both cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pcie/interrupt_mechanism.h"

namespace softhca::pcie {

class Msix final : public InterruptMechanism {
 public:
  static constexpr std::uint16_t kMaxVectors = 2048;
  static constexpr std::size_t kTableEntrySize = 16;  ///< bytes, PCIe 5.0 7.7.2.5

  struct Layout {
    std::uint16_t vectors;       ///< 1 to 2048
    std::uint8_t bar;            ///< where table and PBA live
    std::uint32_t table_offset;  ///< bytes, 8-aligned
    std::uint32_t pba_offset;    ///< bytes, 8-aligned

    /// Bytes of the table.
    std::uint32_t table_size() const { return vectors * std::uint32_t{kTableEntrySize}; }
    /// Bytes of the pending bit array, whole QWORDs.
    std::uint32_t pba_size() const { return (vectors + 63u) / 64u * 8u; }
  };

  explicit Msix(const Layout& layout);

  const Layout& layout() const { return layout_; }

  /// Masking is by Function Mask and the table's Mask bits (PCIe 5.0 6.1.4), or, if external, by
  /// set_vector_masked() alone: the client keeps the table.
  void set_sink(InterruptSink* sink, Masking masking = Masking::kRegisters) override;
  std::uint16_t vectors() const override { return layout_.vectors; }

  /// The device signals `vector`: goes to the sink if MSI-X is enabled and neither the function nor
  /// the vector is masked; stays pending in the PBA if masked, and is sent on unmask (PCIe 5.0
  /// 6.1.4.5). So it does without bus mastering. A vector beyond the table is dropped. With
  /// external masking an unmasked vector is sent whatever the enable bit says: the masker is the
  /// one who knows.
  void raise(std::uint16_t vector) override;
  bool sends(std::uint16_t vector) const override;

  void set_vector_masked(std::uint16_t vector, bool masked) override;
  void set_bus_master(bool enabled) override;

  /// The Message Control register of the capability changed (PCIe 5.0 7.7.2.2).
  void set_control(bool enabled, bool function_masked);
  bool enabled() const { return enabled_; }
  bool pending(std::uint16_t vector) const;
  /// True if raise() would only make `vector` pending.
  bool masked(std::uint16_t vector) const;

  /// Host access to the table, `offset` from its start. @pre inside the table
  void read_table(std::uint32_t offset, std::span<std::byte> out) const;
  void write_table(std::uint32_t offset, std::span<const std::byte> in);
  /// Host read of the pending bit array, `offset` from its start. Writes have no effect.
  void read_pba(std::uint32_t offset, std::span<std::byte> out) const;

  /// Power-on state: disabled, all vectors masked in the table, nothing pending. The sink and its
  /// external masks are the host's and stay.
  void reset();

 private:
  void set_pending(std::uint16_t vector, bool pending);
  void send(std::uint16_t vector);
  /// Sends what is pending and no longer masked.
  void send_pending();

  Layout layout_;
  InterruptSink* sink_ = nullptr;
  Masking masking_ = Masking::kRegisters;
  bool enabled_ = false;
  bool function_masked_ = false;
  bool bus_master_ = true;
  std::vector<std::byte> table_;
  std::vector<std::byte> pba_;
  std::vector<bool> externally_masked_;
};

}  // namespace softhca::pcie
