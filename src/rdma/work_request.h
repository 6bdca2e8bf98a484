// Work requests and completions in the transport's own terms. A device decodes its WQEs to these
// and encodes these into its CQEs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rdma/inline_bytes.h"
#include "rdma/path.h"
#include "rdma/reasons.h"
#include "rdma/types.h"
#include "rdma/xrc_srqs.h"
#include "wire/atomic_eth.h"
#include "wire/icrc.h"

namespace softhca::rdma {

/// A piece of registered memory, or of a send request's inline data. Length 0 means no bytes (a
/// device resolves its own encoding of 2^31).
struct Sge {
  std::uint64_t address;  ///< inline: where it begins in SendRequest::inline_data
  std::uint32_t length;   ///< bytes
  MKey lkey;
  bool is_inline = false;
};

/// Where a request of UD or DC goes.
struct UdDestination : Path {
  Qpn qpn;
  std::uint32_t qkey = 0;
  /// Of all destinations to which the device ever gave one; 0: it gave none. Two with the same
  /// number are the same.
  std::uint64_t number = 0;

  friend bool operator==(const UdDestination& a, const UdDestination& b) {
    if (a.number != 0 && a.number == b.number) return true;
    return static_cast<const Path&>(a) == b && a.qpn == b.qpn && a.qkey == b.qkey;
  }
};

struct SendRequest {
  std::uint32_t cookie = 0;      ///< the device's own (WQE counter)
  Reason fault = Reason::kNone;  ///< with Fetch::kMalformed: a number of the device's own
  SendOpcode opcode = SendOpcode::kNop;
  bool signaled = false;
  bool solicited = false;
  bool fence = false;           ///< waits for earlier reads and atomics
  bool stale = false;           ///< ends in kFlushed and is not sent (WorkQueues::restart_send)
  std::uint32_t immediate = 0;  ///< immediate data (host order), or the rkey to invalidate
  std::uint64_t remote_address = 0;
  MKey rkey;
  XrcSrqn remote_srqn;  ///< XRC: the peer's SRQ that takes the message, or whose PD is accessed
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  wire::MaskedAtomic masked;  ///< of masked atomics, whose operands have `masked.size` bytes
  /// The payload is inline_data. Otherwise it is sges, and those of them that are inline refer to
  /// parts of inline_data, all of them in the order of the message.
  bool is_inline = false;
  // Vectors keep their capacity when an entry is used again: no allocation in steady state.
  std::vector<Sge> sges;
  InlineBytes inline_data;
  UdDestination ud;          ///< UD and DC; its Q_Key is UD's alone
  std::uint64_t dc_key = 0;  ///< DC: of the target

  /// All fields as in a new request, but `masked`, `ud` and `dc_key`, which those that need them
  /// set as a whole; the vectors keep their memory. The transport calls it before
  /// WorkQueues::fetch_send.
  void reset();
};

/// A UD SEND of few bytes to where the one before it went: nothing of it need be kept.
struct ShortDatagram {
  std::uint32_t cookie;  ///< as SendRequest's
  SendOpcode opcode;     ///< kSend or kSendWithImmediate
  bool signaled;
  bool solicited;
  std::uint32_t immediate;  ///< host order
  std::uint32_t length;     ///< bytes, not 0
  const std::byte*
      inline_data;  ///< in the queue's memory, to be read once; null: it is at `address`
  std::uint64_t address;
  MKey lkey;
};

struct ReceiveRequest {
  std::uint32_t cookie = 0;      ///< the device's own (WQE counter, or index in an SRQ)
  Reason fault = Reason::kNone;  ///< with Fetch::kMalformed: a number of the device's own
  /// That its LKeys are checked with, if it is not the QP's: a shared receive queue has its own
  /// (IBTA 10.2.9.3).
  std::optional<Pd> pd = std::nullopt;
  std::vector<Sge> sges;

  void reset() {
    cookie = 0;
    pd.reset();
    fault = Reason::kNone;
    sges.clear();
  }
};

/// A receive request of one piece of memory.
struct ReceivePiece {
  std::uint32_t cookie;  ///< as ReceiveRequest's
  Sge sge;
};

struct SendCompletion {
  std::uint32_t cookie;
  SendOpcode opcode;
  WorkStatus status;
  bool signaled;             ///< as in the request; errors are completed signaled or not
  std::uint32_t byte_count;  ///< of the message; bytes moved by a read or atomic
  Reason reason;             ///< of an error: which check refused it; see describe()
};

enum class ReceiveOpcode : std::uint8_t {
  kSend,
  kSendWithImmediate,
  kSendWithInvalidate,
  kRdmaWriteWithImmediate
};

struct ReceiveCompletion {
  std::uint32_t cookie;
  ReceiveOpcode opcode;
  WorkStatus status;
  bool solicited;
  std::uint32_t byte_count;  ///< UD: with the 40 bytes in front (QpOptions::datagram_header)
  std::uint32_t immediate;   ///< host order, or the invalidated rkey
  Qpn source_qpn;            ///< UD, from the DETH
  XrcSrqn srqn;              ///< XRC: where the request was from
  std::uint16_t pkey;
  wire::NetworkHeader network;            ///< of the packet; kLrh: it had neither GRH nor IP header
  std::optional<std::uint16_t> vlan_tci;  ///< Ethernet
  // InfiniBand.
  Lid source_lid;
  std::uint8_t service_level;
  std::uint8_t path_bits;  ///< those bits of the destination LID that the LMC leaves open
  Reason reason;
};

inline void SendRequest::reset() {
  cookie = 0;
  fault = Reason::kNone;
  opcode = SendOpcode::kNop;
  signaled = solicited = fence = stale = is_inline = false;
  immediate = 0;
  remote_address = swap_add = compare = 0;
  rkey = MKey{};
  remote_srqn = XrcSrqn{};
  sges.clear();
  inline_data.clear();
}

}  // namespace softhca::rdma
