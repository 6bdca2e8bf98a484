// A connection of two QPs as the communication manager sees it (a communication of IBTA 12.9), or
// one side of a SIDR exchange (IBTA 12.11).
#pragma once

#include <cstdint>
#include <optional>

#include "cm/mad.h"
#include "util/clock.h"
#include "wire/gid.h"

namespace softhca::cm {

inline constexpr std::uint8_t kMtu4096 = 5;  ///< ib_mtu

/// The states in order of a connection's life, with the names of IBTA 12.9. An MRA changes no state
/// here, only the time of the next retransmission.
enum class State : std::uint8_t {
  kIdle,     ///< no request has been sent or received
  kReqSent,  ///< or SIDR_REQ
  kReqRcvd,  ///< or SIDR_REQ; the program has not answered yet
  kRepSent,
  kRepRcvd,
  kEstablished,
  kDreqSent,
  kDreqRcvd,  ///< the program has not disconnected yet
  kTimeWait,  ///< its packets may still be in flight
  kOver,
};

/// One of this host's addresses, and the port that has it.
struct LocalAddress {
  unsigned port = 0;           ///< port index
  std::uint8_t gid_index = 0;  ///< in the port's GID table
  wire::Gid gid;
};

/// The path attributes of a connection's packets.
struct Path {
  std::uint8_t mtu = kMtu4096;  ///< ib_mtu
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint8_t ack_timeout = 0;  ///< of the QP: 4.096 us * 2^n (IBTA 9.7.6.1.3)
};

/// A message that is retransmitted until it is answered.
struct Repeated {
  Mad mad{};
  unsigned tries_left = 0;
  util::Duration interval{};
  util::Time next = util::kNever;
  bool was_told_to_wait = false;  ///< by an MRA, since it was last sent
};

/// The exchange of messages that makes a connection (IBTA 12.6).
struct MessageExchange {
  std::uint32_t local_comm_id = 0, remote_comm_id = 0;
  std::uint64_t transaction = 0;
  std::uint64_t service = 0;
  std::uint8_t repeats_max = 0;       ///< retransmissions of each of its messages
  util::Duration response_timeout{};  ///< interval between two of them
  Repeated repeated;
};

/// The attributes of its QPs that the messages carry.
struct QpAttributes {
  std::uint32_t local_qpn = 0, remote_qpn = 0;
  std::uint32_t local_psn = 0;   ///< of the first packet that the peer sends
  std::uint32_t remote_psn = 0;  ///< of the first packet that this side sends
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t retry_count = 7, rnr_retry_count = 7;
  std::uint32_t qkey = 0;  ///< 0: neither the program nor the peer needs it yet
};

struct Connection {
  std::uint32_t user = 0;  ///< the number under which the user knows it
  State state = State::kIdle;
  std::uint8_t qp_type = 0;       ///< ib_uverbs_qp_type
  bool passive = false;           ///< it began with the peer's request
  LocalAddress local;             ///< source of its messages
  std::optional<wire::Gid> peer;  ///< destination of its messages
  Path path;
  MessageExchange exchange;
  QpAttributes qp;
  util::Time waits_until = util::kNever;  ///< kTimeWait
};

/// Whether it is for UD QPs, whose peers are resolved by SIDR.
bool is_datagram(const Connection& connection);

}  // namespace softhca::cm
