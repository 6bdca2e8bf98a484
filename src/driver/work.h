// Work requests and completions, the same for every driver: plain values named like the verbs of
// the InfiniBand specification (IBTA 11.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "driver/address.h"

namespace softhca::driver {

/// A piece of registered memory. A length of 0 means no bytes.
struct Sge {
  std::uint64_t address;
  std::uint32_t length;  ///< bytes
  std::uint32_t lkey;
};

enum class SendOpcode : std::uint8_t {
  kSend,
  kSendWithImmediate,
  kRdmaWrite,
  kRdmaWriteWithImmediate,
  kRdmaRead,
  kCompareSwap,  ///< 8 bytes; the old value goes to the one entry of `pieces`
  kFetchAdd,     ///< 8 bytes; the old value goes to the one entry of `pieces`
};

/// The spans are read only during posting. The memory of `pieces` belongs to the device until the
/// request is complete.
struct SendRequest {
  std::uint64_t id = 0;  ///< returned in the completion
  SendOpcode opcode = SendOpcode::kSend;
  std::span<const Sge> pieces = {};
  std::span<const std::byte> inline_data =
      {};                            ///< if not empty: copied into the request, without `pieces`
  std::uint64_t remote_address = 0;  ///< RDMA and atomics
  std::uint32_t rkey = 0;
  std::uint32_t immediate = 0;
  std::uint64_t compare = 0;      ///< compare and swap
  std::uint64_t swap_or_add = 0;  ///< atomics
  bool signaled = true;           ///< generates a completion also on success
  bool solicited = false;         ///< raises an event if the peer waits for solicited ones
  bool fence = false;             ///< begins after all earlier reads and atomics
  // Destination of a datagram.
  const AddressForm* address =
      nullptr;  ///< address vector of the receiver's port; read only during posting
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_qkey =
      0;  ///< if its top bit is set, the sender's own Q_Key is sent (IBTA 10.2.5)
};

/// An Ethernet frame to send: headers in the request, the rest in `pieces`. A device may require
/// some headers in the request. If the device cuts the message (`segment_size`), `header` must be
/// exactly its headers.
struct FrameRequest {
  std::uint64_t id = 0;  ///< returned in the completion
  std::span<const std::byte> header = {};
  std::span<const Sge> pieces = {};
  bool checksums = false;          ///< the device inserts the checksums of IPv4, TCP and UDP
  std::uint16_t segment_size = 0;  ///< if not 0, the device cuts the bytes behind `header` into
                                   ///< packets of this many bytes, each with adapted headers
  bool signaled = true;            ///< generates a completion also on success
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  std::span<const Sge> pieces = {};
};

enum class PostStatus : std::uint8_t {
  kOk,
  kQueueFull,      ///< poll the completion queue first
  kTooManyPieces,  ///< more than the queue has room for
  kInlineTooLong,
  kBadRequest,  ///< inline data in a read, an atomic without exactly one piece of 8 bytes, a
                ///< datagram without address
  kWrongState,  ///< the queue pair is in RESET, or not yet in RTS for a send
};

/// How a request ended (IBTA 11.6.2).
enum class WorkStatus : std::uint8_t {
  kSuccess,
  kLocalLength,
  kLocalQpOperation,
  kLocalProtection,
  kFlushed,
  kMemoryWindowBind,
  kBadResponse,
  kLocalAccess,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kTransportRetryExceeded,
  kRnrRetryExceeded,
  kRemoteAborted,
  kUnknown,  ///< a code that the driver does not know
};

enum class CompletionOpcode : std::uint8_t {
  kSend,       ///< with or without immediate
  kRdmaWrite,  ///< with or without immediate
  kRdmaRead,
  kCompareSwap,
  kFetchAdd,
  kReceive,
  kReceiveRdmaWithImmediate,  ///< the peer's RDMA WRITE consumed a receive request
  kOther,                     ///< a failed request whose kind is unknown
};

struct Completion {
  std::uint64_t id = 0;
  WorkStatus status = WorkStatus::kSuccess;
  CompletionOpcode opcode = CompletionOpcode::kOther;  ///< may be kOther on failure
  std::uint8_t vendor_syndrome = 0;                    ///< the device's own error code
  std::uint32_t qpn = 0;                               ///< or the number of the SQ or RQ
  std::uint32_t byte_count = 0;                        ///< of receives, reads and atomics
  std::optional<std::uint32_t> immediate = {};
  std::uint32_t source_qpn = 0;  ///< of a received datagram
  std::uint16_t source_lid = 0;  ///< of a received datagram, on InfiniBand
  // For a received Ethernet frame: checksums that are present and correct.
  bool l3_checksum_ok = false;  ///< the checksum of an IPv4 header; IPv6 has none to fail
  bool l4_checksum_ok = false;  ///< the checksum of TCP or UDP
};

std::string_view to_string(PostStatus status);
std::string_view to_string(WorkStatus status);
std::string_view to_string(CompletionOpcode opcode);

}  // namespace softhca::driver
