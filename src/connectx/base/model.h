// What distinguishes one model of card from another: cards that drivers take for a ConnectX share
// everything else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "connectx/base/bar_layout.h"
#include "connectx/base/companion.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// Mellanox, in PCI's list.
inline constexpr std::uint16_t kVendorId = 0x15B3;

/// A capability that a model has otherwise than limit_list.inc says: less of it, or not at all.
struct ModelCapability {
  std::string_view name;
  std::uint32_t value = 0;
};

/// At first a ConnectX-4.
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

  /// Of capabilities that are no limits: those have a place in Limits. It outlives the device.
  std::span<const ModelCapability> capabilities{};
  /// Groups of capabilities that it has not. Likewise.
  std::span<const spec::connectx::hca_cap_type> without_groups{};
  /// QPs at the same time, which need not be a power of two as log_max_qp tells.
  std::uint32_t qps_max = UINT32_MAX;
  /// The doorbell pages that drivers get. Those below kFirstUar lie over the initialization
  /// segment, which has nothing where a page has its registers.
  std::uint32_t first_uar = kFirstUar;
  std::uint32_t uar_count = kUarCount;
  /// The SQ of a QP begins at the next multiple of so many bytes behind its RQ.
  std::uint32_t send_queue_alignment = 64;
  /// Its SQs take multi-packet send WQEs: opcode LSO with modifier 1, as a ConnectX-4 Lx does.
  bool multi_packet_sends = false;
  /// What it has besides; null: nothing.
  std::unique_ptr<Companion> (*make_companion)() = nullptr;
};

}  // namespace softhca::connectx
