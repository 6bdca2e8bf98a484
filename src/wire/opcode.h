// Packet opcodes and their properties (IBTA 9.2.1 Table 38, Annex A14 for XRC; README.md for DC).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "spec/infiniband/transport.h"

namespace softhca::wire {

/// A packet from the wire may hold any value; see OpcodeInfo::defined.
using Opcode = spec::infiniband::bth_opcode;
using Service = spec::infiniband::bth_service;

enum class Operation : std::uint8_t {
  kSend,
  kRdmaWrite,
  kRdmaReadRequest,
  kRdmaReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kMaskedCompareSwap,
  kMaskedFetchAdd,
  kUnsupported,  ///< a request that no device here executes; its headers count as payload
  kCongestionNotification,
  kDisconnect,  ///< DC: the initiator has left
};

/// The extended headers, in their order in a packet.
enum class ExtHeader : std::uint8_t {
  kDeth,
  kXrcEth,
  kDcEth,
  kReth,
  kAtomicEth,
  kAeth,
  kAtomicAckEth,
  kImmDt,
  kIeth,
};
inline constexpr std::size_t kExtHeaderCount = 9;

/// A set of extended headers.
class ExtHeaderSet {
 public:
  constexpr ExtHeaderSet() = default;
  constexpr bool has(ExtHeader header) const { return (bits_ & bit(header)) != 0; }
  constexpr ExtHeaderSet with(ExtHeader header) const {
    ExtHeaderSet set = *this;
    set.bits_ = static_cast<std::uint16_t>(set.bits_ | bit(header));
    return set;
  }
  friend constexpr bool operator==(ExtHeaderSet, ExtHeaderSet) = default;

 private:
  static constexpr std::uint16_t bit(ExtHeader header) {
    return static_cast<std::uint16_t>(1u << static_cast<unsigned>(header));
  }
  std::uint16_t bits_ = 0;
};

struct OpcodeInfo {
  /// False: no such opcode, or RD, which is not supported. Reserved opcodes of RC and XRC are
  /// defined, as kUnsupported: their responders refuse them.
  bool defined = false;
  Service service{};
  Operation operation{};
  bool first = false;  ///< begins a message; "only" packets are first and last
  bool last = false;   ///< ends a message
  bool request = false;
  ExtHeaderSet headers;
  std::uint8_t headers_size = 0;  ///< bytes of all extended headers
  std::string_view name;          ///< the document's name

  constexpr bool only() const { return first && last; }
  constexpr bool middle() const { return defined && !first && !last; }
  constexpr bool response() const { return defined && !request; }
  constexpr bool has(ExtHeader header) const { return headers.has(header); }
};

extern const std::array<OpcodeInfo, 256> kOpcodes;

/// The opcode of a masked atomic, which has no fixed offset to that of RC. @pre RC, XRC or DC
constexpr Opcode masked_atomic(Service service, bool add) {
  const auto compare_swap = service == Service::XRC  ? Opcode::XRC_MASKED_CMP_SWAP
                            : service == Service::DC ? Opcode::DC_MASKED_CMP_SWAP
                                                     : Opcode::RC_MASKED_CMP_SWAP;
  return static_cast<Opcode>(static_cast<unsigned>(compare_swap) + add);
}

inline const OpcodeInfo& info(Opcode opcode) { return kOpcodes[static_cast<std::uint8_t>(opcode)]; }

}  // namespace softhca::wire
