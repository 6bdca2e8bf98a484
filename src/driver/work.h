// Work requests and completions, the same for every driver: what the verbs of the InfiniBand
// specification call them (IBTA 11.4), as plain values.
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
  kCompareSwap,  ///< 8 bytes; the old value goes to the one piece of `pieces`
  kFetchAdd,     ///< likewise
};

/// The spans are read while posting only; the memory of `pieces` belongs to the device until the
/// request is complete.
struct SendRequest {
  std::uint64_t id = 0;  ///< comes back in the completion
  SendOpcode opcode = SendOpcode::kSend;
  std::span<const Sge> pieces = {};
  std::span<const std::byte> inline_data =
      {};                            ///< if not empty: copied into the request, no `pieces`
  std::uint64_t remote_address = 0;  ///< RDMA and atomics
  std::uint32_t rkey = 0;
  std::uint32_t immediate = 0;
  std::uint64_t compare = 0;      ///< compare and swap
  std::uint64_t swap_or_add = 0;  ///< atomics
  bool signaled = true;           ///< completes with a completion even if all is well
  bool solicited = false;         ///< raises an event where the peer waits for solicited ones
  bool fence = false;             ///< begins after all earlier reads and atomics
  // Datagrams: where they go.
  const AddressForm* address =
      nullptr;  ///< the way to the receiver's port; read while posting only
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_qkey = 0;  ///< with the top bit set, the sender's own is sent (IBTA 10.2.5)
};

/// An Ethernet frame to be sent: headers in the request, the rest in `pieces`. A device may ask for
/// some headers in the request; those of a message that it is to cut must be there exactly.
struct FrameRequest {
  std::uint64_t id = 0;  ///< comes back in the completion
  std::span<const std::byte> header = {};
  std::span<const Sge> pieces = {};
  bool checksums = false;          ///< the device puts those of IPv4, TCP and UDP in their place
  std::uint16_t segment_size = 0;  ///< not 0: it cuts the bytes behind `header` into packets of
                                   ///< so many, each with these headers brought up to date
  bool signaled = true;            ///< completes with a completion even if all is well
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  std::span<const Sge> pieces = {};
};

enum class PostStatus : std::uint8_t {
  kOk,
  kQueueFull,      ///< poll the completion queue first
  kTooManyPieces,  ///< more than the queue was made for
  kInlineTooLong,
  kBadRequest,  ///< inline data that is to be read, an atomic without its one piece of 8 bytes,
                ///< a datagram without address
  kWrongState,  ///< the queue pair is in RESET, or a send came before RTS
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
  kOther,                     ///< of a failed request whose kind is not known
};

struct Completion {
  std::uint64_t id = 0;
  WorkStatus status = WorkStatus::kSuccess;
  CompletionOpcode opcode = CompletionOpcode::kOther;  ///< may be kOther if status is not kSuccess
  std::uint8_t vendor_syndrome = 0;                    ///< the device's own reason for an error
  std::uint32_t qpn = 0;                               ///< or the number of the SQ or RQ
  std::uint32_t byte_count = 0;                        ///< of receives, reads and atomics
  std::optional<std::uint32_t> immediate = {};
  std::uint32_t source_qpn = 0;  ///< of a received datagram
  std::uint16_t source_lid = 0;  ///< likewise, on InfiniBand
  // Of a received Ethernet frame: checksums that are there and right.
  bool l3_checksum_ok = false;  ///< that of an IPv4 header; IPv6 has none to be wrong
  bool l4_checksum_ok = false;  ///< that of TCP or UDP
};

std::string_view to_string(PostStatus status);
std::string_view to_string(WorkStatus status);
std::string_view to_string(CompletionOpcode opcode);

}  // namespace softhca::driver
