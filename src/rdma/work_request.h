// Work requests and completions in the transport's own terms. A device decodes its WQEs into
// requests and encodes completions into its CQEs.
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
  std::uint64_t address;  ///< inline: the offset in SendRequest::inline_data
  std::uint32_t length;   ///< bytes
  MKey lkey;
  bool is_inline = false;
};

/// Destination of a UD or DC request.
struct UdDestination : Path {
  Qpn qpn;
  std::uint32_t qkey = 0;
  /// The device's number for this destination; 0: none. The device never reuses a number for
  /// another destination.
  std::uint64_t number = 0;

  friend bool operator==(const UdDestination& a, const UdDestination& b) {
    if (a.number != 0 && a.number == b.number) return true;
    return static_cast<const Path&>(a) == b && a.qpn == b.qpn && a.qkey == b.qkey;
  }
};

struct SendRequest {
  std::uint32_t cookie = 0;      ///< the device's own (WQE counter)
  Reason fault = Reason::kNone;  ///< with Fetch::kMalformed: one of the device's own reasons
  SendOpcode opcode = SendOpcode::kNop;
  bool signaled = false;
  bool solicited = false;
  bool fence = false;           ///< waits for earlier reads and atomics
  bool stale = false;           ///< is not sent and ends in kFlushed (WorkQueues::restart_send)
  std::uint32_t immediate = 0;  ///< immediate data (host order), or the rkey to invalidate
  std::uint64_t remote_address = 0;
  MKey rkey;
  XrcSrqn remote_srqn;  ///< XRC: the peer's SRQ that takes the message, or whose PD checks the
                        ///< access
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  wire::MaskedAtomic masked;  ///< masked atomics only; operands have `masked.size` bytes
  /// The payload is inline_data. If false, the payload is sges; those that are inline refer to
  /// parts of inline_data, in message order.
  bool is_inline = false;
  // Vectors keep their capacity when an entry is reused: no allocation in steady state.
  std::vector<Sge> sges;
  InlineBytes inline_data;
  UdDestination ud;          ///< UD and DC; only UD uses its Q_Key
  std::uint64_t dc_key = 0;  ///< DC: DC access key of the target

  /// Resets all fields except `masked`, `ud` and `dc_key`, which the requests that need them set as
  /// a whole. Vectors keep their memory. The transport calls it before WorkQueues::fetch_send().
  void reset();
};

/// A short UD SEND to the same destination as the request before it, so none of it need be kept.
struct ShortDatagram {
  std::uint32_t cookie;  ///< as in SendRequest
  SendOpcode opcode;     ///< kSend or kSendWithImmediate
  bool signaled;
  bool solicited;
  std::uint32_t immediate;  ///< host order
  std::uint32_t length;     ///< bytes, not 0
  const std::byte*
      inline_data;  ///< in the queue's memory, to be read once; null: the payload is at `address`
  std::uint64_t address;
  MKey lkey;
};

struct ReceiveRequest {
  std::uint32_t cookie = 0;      ///< the device's own (WQE counter, or SRQ index)
  Reason fault = Reason::kNone;  ///< with Fetch::kMalformed: one of the device's own reasons
  /// PD that its LKeys are checked with, if it is not the QP's: a shared receive queue has its own
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

/// A receive request with a single SGE.
struct ReceivePiece {
  std::uint32_t cookie;  ///< as in ReceiveRequest
  Sge sge;
};

struct SendCompletion {
  std::uint32_t cookie;
  SendOpcode opcode;
  WorkStatus status;
  bool signaled;             ///< as in the request; errors complete unsignaled requests too
  std::uint32_t byte_count;  ///< message bytes; for a READ or atomic, the bytes moved
  Reason reason;             ///< on error: the check that refused it; see describe()
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
  std::uint32_t byte_count;  ///< UD: includes the 40 bytes in front (QpOptions::datagram_header)
  std::uint32_t immediate;   ///< host order, or the invalidated rkey
  Qpn source_qpn;            ///< UD, from the DETH
  XrcSrqn srqn;              ///< XRC: the SRQ of the receive request
  std::uint16_t pkey;
  wire::NetworkHeader network;            ///< of the packet; kLrh: it had neither GRH nor IP header
  std::optional<std::uint16_t> vlan_tci;  ///< Ethernet
  // InfiniBand.
  Lid source_lid;
  std::uint8_t service_level;
  std::uint8_t path_bits;  ///< the bits of the destination LID that the LMC leaves open
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
