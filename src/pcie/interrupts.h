// The interrupts of one function: MSI-X, optionally MSI, and the selection between them, which
// software makes.
#pragma once

#include <cstdint>
#include <optional>

#include "pcie/msi.h"
#include "pcie/msix.h"

namespace softhca::pcie {

class Interrupts {
 public:
  explicit Interrupts(const Msix::Layout& msix) : msix_(msix) {}

  /// To be called at most once, during setup.
  void add_msi(std::uint16_t vectors) { msi_.emplace(vectors); }

  /// Signals `vector` by the mechanism that software has enabled. Software must not enable both
  /// (PCIe 5.0 6.1.4); if it does, MSI-X has precedence here. With neither enabled there is no
  /// interrupt, except by an external masker of MSI-X (Msix::raise).
  void raise(std::uint16_t vector) {
    if (uses_msi()) {
      msi_->raise(vector);
    } else {
      msix_.raise(vector);
    }
  }

  /// True if raise() would send a message immediately: then a thread of the device may call it.
  bool sends(std::uint16_t vector) const {
    return uses_msi() ? msi_->sends(vector) : msix_.sends(vector);
  }
  /// The device's own threads. To be called after all mechanisms are added.
  void set_threads(DeviceThreads* threads) {
    msix_.set_threads(threads);
    if (msi_) msi_->set_threads(threads);
  }

  /// See InterruptMechanism.
  void set_trace(util::Trace* trace) {
    msix_.set_trace(trace);
    if (msi_) msi_->set_trace(trace);
  }

  /// Vectors that the function may raise now: those allocated by software for MSI, or the table of
  /// MSI-X.
  std::uint16_t vectors() const { return uses_msi() ? msi_->allocated() : msix_.layout().vectors; }

  Msix& msix() { return msix_; }
  const Msix& msix() const { return msix_; }
  /// Null if the function has MSI-X only.
  Msi* msi() { return msi_ ? &*msi_ : nullptr; }
  const Msi* msi() const { return msi_ ? &*msi_ : nullptr; }

  /// Bus Master Enable was written.
  void set_bus_master(bool enabled) {
    msix_.set_bus_master(enabled);
    if (msi_) msi_->set_bus_master(enabled);
  }

  void reset() {
    msix_.reset();
    if (msi_) msi_->reset();
  }

 private:
  bool uses_msi() const { return msi_ && msi_->enabled() && !msix_.enabled(); }

  Msix msix_;
  std::optional<Msi> msi_;
};

}  // namespace softhca::pcie
