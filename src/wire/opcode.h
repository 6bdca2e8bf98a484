// Packet opcodes and what each of them brings along (IBTA 9.2.1 Table 38, Annex A14 for XRC).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace softhca::wire {

/// BTH opcode: the transport in bits 7:5, the operation in bits 4:0. A packet from the wire may
/// hold any value; see OpcodeInfo::defined.
enum class Opcode : std::uint8_t {
  RC_SEND_FIRST = 0x00,
  RC_SEND_MIDDLE = 0x01,
  RC_SEND_LAST = 0x02,
  RC_SEND_LAST_WITH_IMMEDIATE = 0x03,
  RC_SEND_ONLY = 0x04,
  RC_SEND_ONLY_WITH_IMMEDIATE = 0x05,
  RC_RDMA_WRITE_FIRST = 0x06,
  RC_RDMA_WRITE_MIDDLE = 0x07,
  RC_RDMA_WRITE_LAST = 0x08,
  RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09,
  RC_RDMA_WRITE_ONLY = 0x0a,
  RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0b,
  RC_RDMA_READ_REQUEST = 0x0c,
  RC_RDMA_READ_RESPONSE_FIRST = 0x0d,
  RC_RDMA_READ_RESPONSE_MIDDLE = 0x0e,
  RC_RDMA_READ_RESPONSE_LAST = 0x0f,
  RC_RDMA_READ_RESPONSE_ONLY = 0x10,
  RC_ACKNOWLEDGE = 0x11,
  RC_ATOMIC_ACKNOWLEDGE = 0x12,
  RC_COMPARE_SWAP = 0x13,
  RC_FETCH_ADD = 0x14,
  RC_SEND_LAST_WITH_INVALIDATE = 0x16,
  RC_SEND_ONLY_WITH_INVALIDATE = 0x17,
  UC_SEND_FIRST = 0x20,
  UC_SEND_MIDDLE = 0x21,
  UC_SEND_LAST = 0x22,
  UC_SEND_LAST_WITH_IMMEDIATE = 0x23,
  UC_SEND_ONLY = 0x24,
  UC_SEND_ONLY_WITH_IMMEDIATE = 0x25,
  UC_RDMA_WRITE_FIRST = 0x26,
  UC_RDMA_WRITE_MIDDLE = 0x27,
  UC_RDMA_WRITE_LAST = 0x28,
  UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29,
  UC_RDMA_WRITE_ONLY = 0x2a,
  UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2b,
  UD_SEND_ONLY = 0x64,
  UD_SEND_ONLY_WITH_IMMEDIATE = 0x65,
  CNP = 0x81,  ///< congestion notification, IBTA Annex A17 17.9.3
  XRC_SEND_FIRST = 0xa0,
  XRC_SEND_MIDDLE = 0xa1,
  XRC_SEND_LAST = 0xa2,
  XRC_SEND_LAST_WITH_IMMEDIATE = 0xa3,
  XRC_SEND_ONLY = 0xa4,
  XRC_SEND_ONLY_WITH_IMMEDIATE = 0xa5,
  XRC_RDMA_WRITE_FIRST = 0xa6,
  XRC_RDMA_WRITE_MIDDLE = 0xa7,
  XRC_RDMA_WRITE_LAST = 0xa8,
  XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0xa9,
  XRC_RDMA_WRITE_ONLY = 0xaa,
  XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0xab,
  XRC_RDMA_READ_REQUEST = 0xac,
  XRC_RDMA_READ_RESPONSE_FIRST = 0xad,
  XRC_RDMA_READ_RESPONSE_MIDDLE = 0xae,
  XRC_RDMA_READ_RESPONSE_LAST = 0xaf,
  XRC_RDMA_READ_RESPONSE_ONLY = 0xb0,
  XRC_ACKNOWLEDGE = 0xb1,
  XRC_ATOMIC_ACKNOWLEDGE = 0xb2,
  XRC_COMPARE_SWAP = 0xb3,
  XRC_FETCH_ADD = 0xb4,
  XRC_SEND_LAST_WITH_INVALIDATE = 0xb6,
  XRC_SEND_ONLY_WITH_INVALIDATE = 0xb7,
};

enum class Transport : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5 };

enum class Operation : std::uint8_t {
  kSend,
  kRdmaWrite,
  kRdmaReadRequest,
  kRdmaReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kCongestionNotification,
};

/// The extended headers, in the order in which they stand in a packet.
enum class ExtHeader : std::uint8_t {
  kDeth,
  kXrcEth,
  kReth,
  kAtomicEth,
  kAeth,
  kAtomicAckEth,
  kImmDt,
  kIeth,
};
inline constexpr std::size_t kExtHeaderCount = 8;

/// A set of extended headers.
class ExtHeaderSet {
 public:
  constexpr ExtHeaderSet() = default;
  constexpr bool has(ExtHeader header) const { return (bits_ & bit(header)) != 0; }
  constexpr ExtHeaderSet with(ExtHeader header) const {
    ExtHeaderSet set = *this;
    set.bits_ = static_cast<std::uint8_t>(set.bits_ | bit(header));
    return set;
  }
  friend constexpr bool operator==(ExtHeaderSet, ExtHeaderSet) = default;

 private:
  static constexpr std::uint8_t bit(ExtHeader header) {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(header));
  }
  std::uint8_t bits_ = 0;
};

struct OpcodeInfo {
  bool defined = false;  ///< false: no such opcode, or RD, which we do not speak
  Transport transport{};
  Operation operation{};
  bool first = false;  ///< begins a message; "only" packets are first and last
  bool last = false;   ///< ends a message
  bool request = false;
  ExtHeaderSet headers;
  std::uint8_t headers_size = 0;  ///< of all extended headers together
  std::string_view name;

  constexpr bool only() const { return first && last; }
  constexpr bool middle() const { return defined && !first && !last; }
  constexpr bool response() const { return defined && !request; }
  constexpr bool has(ExtHeader header) const { return headers.has(header); }
};

extern const std::array<OpcodeInfo, 256> kOpcodes;

inline const OpcodeInfo& info(Opcode opcode) { return kOpcodes[static_cast<std::uint8_t>(opcode)]; }
/// The document's name, "undefined" if it has none.
inline std::string_view to_string(Opcode opcode) {
  return info(opcode).defined ? info(opcode).name : "undefined";
}

}  // namespace softhca::wire
