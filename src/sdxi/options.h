// Options of an SDXI function: its capabilities (SDXI 9.1) and its timeouts.
#pragma once

#include <cstdint>
#include <string>

#include "sdxi/format.h"
#include "sdxi/memory.h"
#include "util/clock.h"

namespace softhca::sdxi {

/// The set of atomic operations of SDXI 6.3 that the function has.
enum class AtomicSet : std::uint8_t { kNone, kMinimal, kFull };

/// MMIO_CAP0 and MMIO_CAP1 (SDXI 9.1). Powers of two are encoded as in the registers.
struct Capabilities {
  std::uint16_t max_cxt = 127;       ///< highest context number
  std::uint8_t db_stride = 0;        ///< 4 KiB
  std::uint8_t max_ds_ring_sz = 10;  ///< 2^20 descriptors
  std::uint8_t max_buffer = 11;      ///< 4 GiB
  std::uint8_t max_akey_sz = 8;      ///< 65536 keys
  std::uint8_t max_rkey_sz = 8;      ///< 65536 keys
  std::uint8_t max_errlog_sz = 9;    ///< 4 GiB
  spec::cs_cap cs_cap = spec::cs_cap::CS_BOTH;
  bool rkey_cap = true;
  AtomicSet atomics = AtomicSet::kFull;
  bool interrupt_group = true;
};

struct DeviceOptions {
  std::string name = "sdxi0";  ///< for logs
  std::uint16_t vendor_id = 0x1234;
  std::uint16_t device_id = 0x5d01;

  Capabilities capabilities = {};

  /// Number of MSI-X vectors. Message 0 is for errors and mailboxes.
  std::uint16_t msix_vectors = 130;
  /// Number of MSI vectors, for a driver without MSI-X: a power of two up to 32, or 0 for no MSI.
  std::uint16_t msi_vectors = 32;
  /// The address spaces that PASIDs select; null: no PASID support, unless `any_pasid`. Outlives
  /// the device.
  const PasidSpaces* pasid_spaces = nullptr;
  /// Every PASID reaches the memory that requests without a PASID reach, as behind an IOMMU that
  /// does not translate. `pasid_spaces` is null.
  bool any_pasid = false;

  /// The SDXI function group (SDXI 3.3.1): functions of groups with different names cannot reach
  /// each other. A VF is in the group of its PF.
  std::string group{};

  /// VFs of this function that may join its group, for the mailboxes (SDXI 9.4). At most 4096.
  std::uint16_t vfs = 0;

  /// Threads that execute descriptors for all functions of the group; the largest number among its
  /// functions is used. 0: everything runs in the caller of run().
  unsigned workers = 0;

  /// How long a soft stop waits for outstanding descriptors before it aborts them (SDXI 4.3.5). The
  /// Linux driver waits 1 s for the function to stop: half of it lets the driver see the abort.
  util::Duration soft_stop_timeout = std::chrono::milliseconds(500);
  /// Bytes of work per turn of one context.
  std::uint32_t turn_bytes = 256 << 10;
  /// Bytes of work of all contexts in one run().
  std::uint32_t run_bytes = 1 << 20;
  /// Cost of a descriptor without data, in bytes.
  std::uint32_t descriptor_bytes = 1024;
  /// First and longest pause before a missing valid bit is read again (SDXI 5.3 step 5). Each pause
  /// is twice the one before, so that the delay for a slow producer is at most the time that it
  /// took.
  util::Duration valid_poll_min = std::chrono::microseconds(1);
  util::Duration valid_poll_max = std::chrono::milliseconds(100);
};

}  // namespace softhca::sdxi
