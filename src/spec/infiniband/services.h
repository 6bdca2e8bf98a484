// The capabilities of each service of a queue pair, as data (IBTA 9.8 and Annex A14).
//
// Code that needs to know whether a QP acknowledges, retries, has a peer or supports READs looks
// here instead of testing its type. RD has no row: it is not implemented.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "spec/infiniband/transport.h"

namespace softhca::spec::infiniband {

enum class QpType : std::uint8_t {
  kRc,
  kUc,
  kUd,
  kXrcInitiator,  ///< sends XRC requests (Annex A14)
  kXrcTarget,     ///< takes XRC requests; each names its SRQ
  kDcInitiator,   ///< dynamically connected: each request names its target
  kDcResponder,   ///< one connection of a DC target, created by its first packet
};
inline constexpr std::size_t kQpTypes = 7;

/// A set of QP types.
class QpTypes {
 public:
  constexpr QpTypes() = default;
  constexpr QpTypes(std::initializer_list<QpType> types) {
    for (const auto type : types) bits_ = static_cast<std::uint8_t>(bits_ | bit(type));
  }
  constexpr bool has(QpType type) const { return (bits_ & bit(type)) != 0; }
  friend constexpr bool operator==(QpTypes, QpTypes) = default;

 private:
  static constexpr std::uint8_t bit(QpType type) {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(type));
  }
  std::uint8_t bits_ = 0;
};
/// Types that MODIFY QP applies to. It excludes DC responders, which come and go with their peers.
inline constexpr QpTypes kAllQpTypes{QpType::kRc,        QpType::kUc,
                                     QpType::kUd,        QpType::kXrcInitiator,
                                     QpType::kXrcTarget, QpType::kDcInitiator};

/// Operations of a send queue (IBTA 11.4.1.1).
enum class SendOpcode : std::uint8_t {
  kNop,
  kSend,
  kSendWithImmediate,
  kSendWithInvalidate,
  kRdmaWrite,
  kRdmaWriteWithImmediate,
  kRdmaRead,
  kCompareSwap,
  kFetchAdd,
  kMaskedCompareSwap,  ///< not in any InfiniBand document: mlx5 driver interface 8.3
  kMaskedFetchAdd,
  kLocal,  ///< not on the wire: registration, local invalidate, memory window bind
};
inline constexpr std::size_t kSendOpcodes = 12;

/// A set of send opcodes.
class SendOpcodes {
 public:
  constexpr SendOpcodes() = default;
  constexpr SendOpcodes(std::initializer_list<SendOpcode> opcodes) {
    for (const auto opcode : opcodes) bits_ = static_cast<std::uint16_t>(bits_ | bit(opcode));
  }
  constexpr bool has(SendOpcode opcode) const { return (bits_ & bit(opcode)) != 0; }
  constexpr SendOpcodes operator|(SendOpcodes other) const {
    other.bits_ = static_cast<std::uint16_t>(other.bits_ | bits_);
    return other;
  }
  friend constexpr bool operator==(SendOpcodes, SendOpcodes) = default;

 private:
  static constexpr std::uint16_t bit(SendOpcode opcode) {
    return static_cast<std::uint16_t>(1u << static_cast<unsigned>(opcode));
  }
  std::uint16_t bits_ = 0;
};

struct ServiceRules {
  QpType type;
  std::string_view name;
  bth_service packets;   ///< the class of its packets' opcodes
  SendOpcodes may_post;  ///< operations of its send queue
  bool connected;        ///< has one peer, named by its attributes, and takes its packets only
  bool fixed_peer;       ///< connected: the peer never changes; if false, each request names it
  bool datagram;         ///< each request names its destination; a request is one packet
  bool reliable;         ///< requests are acknowledged, retried, and refused with a NAK
  bool requests;         ///< sends requests
  bool responds;         ///< takes requests
  bool names_srq;        ///< each request packet names the SRQ that it is for
  bool keeps_receiving;  ///< a failed send request leads to SQE, not to ERR (IBTA 10.3.1.7)
};

namespace services {

inline constexpr SendOpcodes kEverybody{SendOpcode::kNop, SendOpcode::kLocal, SendOpcode::kSend,
                                        SendOpcode::kSendWithImmediate};
inline constexpr SendOpcodes kWrites{SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImmediate};
inline constexpr SendOpcodes kReliable{
    SendOpcode::kSendWithInvalidate, SendOpcode::kRdmaRead,          SendOpcode::kCompareSwap,
    SendOpcode::kFetchAdd,           SendOpcode::kMaskedCompareSwap, SendOpcode::kMaskedFetchAdd};

// may_post is from IBTA 9.4 Table 36; the rest from 9.7 (reliable), 9.8.2 (UC), 9.8.3 (UD), A14. DC
// is in no InfiniBand document: mlx5 driver interface 7.10.
inline constexpr std::array<ServiceRules, kQpTypes> kRules{{
    {.type = QpType::kRc,
     .name = "RC",
     .packets = bth_service::RC,
     .may_post = kEverybody | kWrites | kReliable,
     .connected = true,
     .fixed_peer = true,
     .datagram = false,
     .reliable = true,
     .requests = true,
     .responds = true,
     .names_srq = false,
     .keeps_receiving = false},
    {.type = QpType::kUc,
     .name = "UC",
     .packets = bth_service::UC,
     .may_post = kEverybody | kWrites,
     .connected = true,
     .fixed_peer = true,
     .datagram = false,
     .reliable = false,
     .requests = true,
     .responds = true,
     .names_srq = false,
     .keeps_receiving = true},
    {.type = QpType::kUd,
     .name = "UD",
     .packets = bth_service::UD,
     .may_post = kEverybody,
     .connected = false,
     .fixed_peer = false,
     .datagram = true,
     .reliable = false,
     .requests = true,
     .responds = true,
     .names_srq = false,
     .keeps_receiving = true},
    {.type = QpType::kXrcInitiator,
     .name = "XRC INI",
     .packets = bth_service::XRC,
     .may_post = kEverybody | kWrites | kReliable,
     .connected = true,
     .fixed_peer = true,
     .datagram = false,
     .reliable = true,
     .requests = true,
     .responds = false,
     .names_srq = true,
     .keeps_receiving = false},
    {.type = QpType::kXrcTarget,
     .name = "XRC TGT",
     .packets = bth_service::XRC,
     .may_post = {},
     .connected = true,
     .fixed_peer = true,
     .datagram = false,
     .reliable = true,
     .requests = false,
     .responds = true,
     .names_srq = true,
     .keeps_receiving = false},
    {.type = QpType::kDcInitiator,
     .name = "DCI",
     .packets = bth_service::DC,
     .may_post = kEverybody | kWrites | kReliable,
     .connected = true,
     .fixed_peer = false,
     .datagram = false,
     .reliable = true,
     .requests = true,
     .responds = false,
     .names_srq = false,
     .keeps_receiving = false},
    {.type = QpType::kDcResponder,
     .name = "DCR",
     .packets = bth_service::DC,
     .may_post = {},
     .connected = true,
     .fixed_peer = true,
     .datagram = false,
     .reliable = true,
     .requests = false,
     .responds = true,
     .names_srq = false,
     .keeps_receiving = false},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i != kRules.size(); ++i) {
    if (static_cast<std::size_t>(kRules[i].type) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace services

constexpr const ServiceRules& service_rules(QpType type) {
  return services::kRules[static_cast<std::size_t>(type)];
}

constexpr std::string_view to_string(QpType type) { return service_rules(type).name; }

/// Opcodes of one service, the reserved ones included (IBTA 9.2.1).
inline constexpr std::size_t kServiceOpcodes = 32;

/// The opcode of a service for the operation of the RC opcode `rc`. Bits 7:5 are the service, whose
/// code is 0 for RC, and bits 4:0 the operation (IBTA 9.2.1). Not every service has every
/// operation.
constexpr bth_opcode opcode_of(bth_service service, bth_opcode rc) {
  return bth_opcode(static_cast<unsigned>(service) << 5 | static_cast<unsigned>(rc));
}

}  // namespace softhca::spec::infiniband
