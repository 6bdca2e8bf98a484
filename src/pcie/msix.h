// MSI-X: the table and pending bit array in a BAR, and the interface to the host's interrupt
// controller.
//
// The host's kind decides how a vector is masked. An in-process driver writes the MSI-X table, as
// on hardware. A vfio-user client keeps the table itself, and its messages say which vectors may be
// sent: it is an external masker. In both cases the pending bits are kept here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pcie/interrupt_mechanism.h"
#include "spec/pci/config.h"

namespace softhca::pcie {

class Msix final : public InterruptMechanism {
 public:
  static constexpr std::uint16_t kMaxVectors = 2048;
  static constexpr std::size_t kTableEntrySize = spec::pci::msix_table_entry::kSize;  ///< bytes

  struct Layout {
    std::uint16_t vectors;       ///< 1 to 2048
    std::uint8_t bar;            ///< BAR of table and PBA
    std::uint32_t table_offset;  ///< bytes, 8-aligned
    std::uint32_t pba_offset;    ///< bytes, 8-aligned

    /// Bytes of the table.
    std::uint32_t table_size() const { return vectors * std::uint32_t{kTableEntrySize}; }
    /// Bytes of the pending bit array, whole QWORDs.
    std::uint32_t pba_size() const { return (vectors + 63u) / 64u * 8u; }
  };

  explicit Msix(const Layout& layout);

  const Layout& layout() const { return layout_; }

  /// Vectors are masked by Function Mask and the table's Mask bits (PCIe 5.0 6.1.4), or, if masking
  /// is external, only by set_vector_masked(): the client keeps the table.
  void set_sink(InterruptSink* sink, Masking masking = Masking::kRegisters) override;
  std::uint16_t vectors() const override { return layout_.vectors; }

  /// Signals `vector`. It goes to the sink if MSI-X is enabled and neither the function nor the
  /// vector is masked. If masked, or without bus mastering, it becomes pending in the PBA, and is
  /// sent on unmask (PCIe 5.0 6.1.4.5). A vector beyond the table is dropped. With external
  /// masking, an unmasked vector is sent regardless of the enable bit, because only the masker
  /// knows the real state.
  void raise(std::uint16_t vector) override;
  bool sends(std::uint16_t vector) const override;

  void set_vector_masked(std::uint16_t vector, bool masked) override;
  void set_bus_master(bool enabled) override;

  /// Called when the capability's Message Control register changed (PCIe 5.0 7.7.2.2).
  void set_control(bool enabled, bool function_masked);
  bool enabled() const { return enabled_; }
  bool pending(std::uint16_t vector) const;
  /// True if raise() would only make `vector` pending.
  bool masked(std::uint16_t vector) const;

  /// Host access to the table, at `offset` from its start. @pre inside the table
  void read_table(std::uint32_t offset, std::span<std::byte> out) const;
  void write_table(std::uint32_t offset, std::span<const std::byte> in);
  /// Host read of the pending bit array, at `offset` from its start. Writes have no effect.
  void read_pba(std::uint32_t offset, std::span<std::byte> out) const;

  /// Restores the power-on state: disabled, all vectors masked in the table, nothing pending. The
  /// sink and its external masks belong to the host and do not change.
  void reset();

 private:
  void set_pending(std::uint16_t vector, bool pending);
  void send(std::uint16_t vector);
  /// Sends pending messages that are no longer masked.
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
