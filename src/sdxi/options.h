// What distinguishes one SDXI function from another: its capabilities (SDXI 9.1) and its patience.
#pragma once

#include <cstdint>
#include <string>

#include "sdxi/format.h"
#include "sdxi/memory.h"
#include "util/clock.h"

namespace softhca::sdxi {

/// Which of SDXI 6.3's two sets of atomic operations there is.
enum class AtomicSet : std::uint8_t { kNone, kMinimal, kFull };

struct DeviceOptions {
  std::string name = "sdxi0";  ///< for logs
  std::uint16_t vendor_id = 0x1234;
  std::uint16_t device_id = 0x5d01;

  // MMIO_CAP0, MMIO_CAP1. Powers are encoded as in the registers.
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

  /// Message 0 is for errors and mailboxes.
  std::uint16_t msix_vectors = 130;
  /// For a driver that uses MSI instead: a power of two up to 32, or 0 for no MSI.
  std::uint16_t msi_vectors = 32;
  /// The address spaces behind PASIDs; null: no PASID support, unless `any_pasid`. Outlives the
  /// device.
  const PasidSpaces* pasid_spaces = nullptr;
  /// Each PASID reaches the memory that requests without PASID reach, as behind an IOMMU that
  /// translates neither. `pasid_spaces` is null.
  bool any_pasid = false;

  /// The SDXI function group (SDXI 3.3.1): functions of different names do not reach each other. A
  /// VF is in the group of its PF.
  std::string group{};

  /// Virtual functions of this one that may join its group, for the mailboxes (SDXI 9.4). At most
  /// 4096.
  std::uint16_t vfs = 0;

  /// Threads that execute descriptors, for all functions of the group: the largest number that one
  /// of them asks for. 0: everything runs in the caller of run().
  unsigned workers = 0;

  /// How long a soft stop waits for outstanding descriptors before it aborts them (SDXI 4.3.5). The
  /// Linux driver waits 1 s for the function to stop: half of it lets the driver see the abort.
  util::Duration soft_stop_timeout = std::chrono::milliseconds(500);
  /// Bytes of one context's work before the next context has its turn.
  std::uint32_t turn_bytes = 256 << 10;
  /// Bytes of all contexts' work in one run().
  std::uint32_t run_bytes = 1 << 20;
  /// Bytes that a descriptor without data counts for.
  std::uint32_t descriptor_bytes = 1024;
  /// First and longest wait before a missing valid bit is looked at again (SDXI 5.3 step 5); each
  /// is twice the one before, so that what a slow producer waits is at most what it took.
  util::Duration valid_poll_min = std::chrono::microseconds(1);
  util::Duration valid_poll_max = std::chrono::milliseconds(100);
};

}  // namespace softhca::sdxi
