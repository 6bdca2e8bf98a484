// The facts about a frame that fault rules ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fabric/fault_rule.h"
#include "wire/frame.h"
#include "wire/ib_address.h"
#include "wire/opcode.h"

namespace softhca::fabric {

struct FrameFacts {
  /// A place in the frame's bytes.
  struct Range {
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  FrameKind kind = FrameKind::kOther;
  wire::Opcode opcode{};           ///< kRdma
  std::uint32_t dest_qp = 0;       ///< kRdma
  bool has_ip = false;             ///< the head has an IP header, also of RoCEv2
  std::size_t network_offset = 0;  ///< has_ip: of that header
  std::optional<wire::MacAddress> source_mac = {}, destination_mac = {};
  std::optional<wire::Gid> source_gid = {}, destination_gid = {};
  std::optional<wire::Lid> source_lid = {}, destination_lid = {};
  /// The parts that FaultAction::kCorrupt changes; empty: the frame has none.
  Range header, payload, icrc;

  /// The frame's bytes are untrusted. @pre frame.packets() == 1
  static FrameFacts of(const wire::Frame& frame);
};

/// True if the rule's keys about frames match. The direction is that of the port.
bool matches(const FaultRule& rule, const FrameFacts& facts);

}  // namespace softhca::fabric
