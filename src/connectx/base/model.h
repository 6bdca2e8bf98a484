// The differences between models of card. Cards that drivers treat as a ConnectX differ only in
// these.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "connectx/base/bar_layout.h"
#include "connectx/base/companion.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// Mellanox, in the PCI vendor list.
inline constexpr std::uint16_t kVendorId = 0x15B3;

/// A capability that a model reduces or lacks.
struct ModelCapability {
  std::string_view name;
  std::uint32_t value = 0;
};

/// A model of card. The defaults are a ConnectX-4.
struct Model {
  std::string_view product_name = "softhca ConnectX-4";  ///< in the Vital Product Data
  std::string_view part_number = "softhca-cx4";
  // PCI.
  std::uint16_t device_id = 0x1013;
  std::uint16_t subsystem_id = 0x0008;
  std::uint8_t first_capability = 0x40;  ///< where the capability list begins
  // The initialization segment.
  std::uint16_t firmware_major = 12;
  std::uint16_t firmware_minor = 28;
  std::uint16_t firmware_subminor = 2006;

  /// Overrides of capabilities that are not limits (limits are in Limits). The array outlives the
  /// device.
  std::span<const ModelCapability> capabilities{};
  /// Capability groups that the model lacks. The array outlives the device.
  std::span<const spec::connectx::hca_cap_type> without_groups{};
  /// Maximum number of QPs. Need not be a power of two, unlike log_max_qp.
  std::uint32_t qps_max = UINT32_MAX;
  /// First doorbell page that drivers get. Pages below kFirstUar overlap the initialization
  /// segment, which has no registers at the offsets of doorbells.
  std::uint32_t first_uar = kFirstUar;
  std::uint32_t uar_count = kUarCount;
  /// After its RQ, a QP's SQ begins at the next multiple of this many bytes.
  std::uint32_t send_queue_alignment = 64;
  /// True if SQs accept multi-packet send WQEs: opcode LSO with modifier 1, as on a ConnectX-4 Lx.
  bool multi_packet_sends = false;
  /// Creates the model's companion. Null: it has none.
  std::unique_ptr<Companion> (*make_companion)() = nullptr;
};

}  // namespace softhca::connectx
