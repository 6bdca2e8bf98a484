// The parts of a communication manager's message: enough to find the process that it is
// for. Any host can send one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "spec/infiniband/cm.h"

namespace softhca::hub {

struct CmMessage {
  using Attribute = spec::infiniband::cm_attribute;

  Attribute attribute{};
  std::uint32_t local = 0;    ///< the sender's number: of its connection, or of a SIDR_REQ
  std::uint32_t remote = 0;   ///< the receiver's number; 0 in a request, and if it is not known
  std::uint64_t service = 0;  ///< only of a request

  bool is_request() const {
    return attribute == Attribute::REQ || attribute == Attribute::SIDR_REQ;
  }

  /// `packet`: from the BTH to the ICRC, which is not checked. Nothing: no message of a
  /// communication manager to QP1 (IBTA 12.6, 13.4.2), or one that softhca's does not handle.
  static std::optional<CmMessage> parse(std::span<const std::byte> packet);
  /// Bytes of every such packet.
  static const std::size_t kPacketSize;
};

}  // namespace softhca::hub
