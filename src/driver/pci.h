// Accesses to configuration space that every driver needs: enabling decoding and bus mastering, and
// MSI-X or MSI (PCIe 5.0 7.5.1, 7.7.1, 7.7.2). Little-endian, like PCI.
#pragma once

#include <cstdint>

#include "driver/host.h"

namespace softhca::driver {

struct PciId {
  std::uint16_t vendor;
  std::uint16_t device;
};

PciId read_pci_id(Host& host);

/// Sets Memory Space Enable and Bus Master Enable.
void enable_bus_master(Host& host);
/// Sets AtomicOp Requester Enable (PCIe 5.0 7.5.3.16). False if the device has no such bit.
bool enable_atomic_requests(Host& host);
/// Clears Bus Master Enable: the device must not access memory any more.
void disable_bus_master(Host& host);

/// Unmasks vectors 0 to `count` - 1 in the table and enables MSI-X. The message's data is the
/// vector number. Fails if there is no MSI-X or the table is shorter.
util::Result<void> enable_msix(Host& host, unsigned count);
/// Disables MSI-X; no effect if the device has none.
void disable_msix(Host& host);

/// Allocates the next power of two of `count` vectors, unmasked, and enables MSI. Fails if the
/// device has no MSI, or fewer vectors. Not to be used together with MSI-X.
util::Result<void> enable_msi(Host& host, unsigned count);
/// Disables MSI; no effect if the device has none.
void disable_msi(Host& host);

}  // namespace softhca::driver
