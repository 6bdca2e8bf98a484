// The packet opcodes of each kind of message. Internal.
#pragma once

#include <array>
#include <cstddef>

#include "rdma/types.h"
#include "wire/opcode.h"

namespace softhca::rdma {

/// The packet opcodes of a message (IBTA 9.2.1 Table 38), by whether the packet is its first and
/// whether it is its last.
struct MessageOpcodes {
  constexpr MessageOpcodes() = default;
  constexpr MessageOpcodes(wire::Opcode first, wire::Opcode middle, wire::Opcode last,
                           wire::Opcode only)
      : by_place{middle, first, last, only} {}

  wire::Opcode at(bool first, bool last) const { return by_place[first + 2 * last]; }

  std::array<wire::Opcode, 4> by_place{};
};

inline constexpr MessageOpcodes kSendMessage{
    wire::Opcode::RC_SEND_FIRST, wire::Opcode::RC_SEND_MIDDLE, wire::Opcode::RC_SEND_LAST,
    wire::Opcode::RC_SEND_ONLY};

/// By SendOpcode. Opcodes that send no message have those of SEND.
inline constexpr auto kMessageOpcodes = [] {
  std::array<MessageOpcodes, spec::infiniband::kSendOpcodes> all;
  all.fill(kSendMessage);
  const auto put = [&](SendOpcode opcode, const MessageOpcodes& opcodes) {
    all[static_cast<std::size_t>(opcode)] = opcodes;
  };
  put(SendOpcode::kSendWithImmediate,
      {wire::Opcode::RC_SEND_FIRST, wire::Opcode::RC_SEND_MIDDLE,
       wire::Opcode::RC_SEND_LAST_WITH_IMMEDIATE, wire::Opcode::RC_SEND_ONLY_WITH_IMMEDIATE});
  put(SendOpcode::kSendWithInvalidate,
      {wire::Opcode::RC_SEND_FIRST, wire::Opcode::RC_SEND_MIDDLE,
       wire::Opcode::RC_SEND_LAST_WITH_INVALIDATE, wire::Opcode::RC_SEND_ONLY_WITH_INVALIDATE});
  put(SendOpcode::kRdmaWrite,
      {wire::Opcode::RC_RDMA_WRITE_FIRST, wire::Opcode::RC_RDMA_WRITE_MIDDLE,
       wire::Opcode::RC_RDMA_WRITE_LAST, wire::Opcode::RC_RDMA_WRITE_ONLY});
  put(SendOpcode::kRdmaWriteWithImmediate,
      {wire::Opcode::RC_RDMA_WRITE_FIRST, wire::Opcode::RC_RDMA_WRITE_MIDDLE,
       wire::Opcode::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
       wire::Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE});
  return all;
}();

inline const MessageOpcodes& rc_opcodes(SendOpcode opcode) {
  return kMessageOpcodes[static_cast<std::size_t>(opcode)];
}

}  // namespace softhca::rdma
