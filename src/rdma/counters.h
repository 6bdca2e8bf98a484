// Counters of a port and of a set of QPs. One table each holds names and meanings, so that code
// which prints counters need not list them again.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace softhca::rdma {

/// Q counters: a device gives a set to the QPs that count in it (QpOptions::counters).
struct QpCounters {
  // Counted by the responder.
  std::uint64_t rx_write_requests = 0;
  std::uint64_t rx_read_requests = 0;
  std::uint64_t rx_atomic_requests = 0;
  std::uint64_t rx_dct_connect = 0;
  std::uint64_t out_of_buffer = 0;
  std::uint64_t out_of_sequence = 0;
  std::uint64_t duplicate_request = 0;
  std::uint64_t rnr_naks_sent = 0;
  std::uint64_t resp_local_length_error = 0;
  std::uint64_t resp_cqe_error = 0;
  std::uint64_t resp_cqe_flush_error = 0;
  std::uint64_t resp_remote_access_errors = 0;
  std::uint64_t resp_remote_invalid_request = 0;
  // Counted by the requester.
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t rnr_retries_exceeded = 0;
  std::uint64_t transport_retries_exceeded = 0;
  std::uint64_t packet_seq_err = 0;
  std::uint64_t implied_nak_seq_err = 0;
  std::uint64_t local_ack_timeout_err = 0;
  std::uint64_t retransmitted_packets = 0;
  std::uint64_t req_cqe_error = 0;
  std::uint64_t req_cqe_flush_error = 0;
  std::uint64_t req_remote_invalid_request = 0;
  std::uint64_t req_remote_access_errors = 0;
  std::uint64_t req_remote_operation_errors = 0;
};

struct QpCounterInfo {
  std::string_view name;
  std::string_view unit;
  std::string_view meaning;
  std::uint64_t QpCounters::* value;
};
std::span<const QpCounterInfo> qp_counter_table();

/// Why a RoCE packet was dropped.
enum class Drop : std::uint8_t {
  kMalformed,     ///< headers do not add up
  kIcrc,          ///< wrong ICRC
  kQpState,       ///< the QP's state does not accept the packet
  kService,       ///< opcode of another service than the QP's
  kSource,        ///< not from the QP's peer
  kPkey,          ///< wrong P_Key
  kQkey,          ///< wrong Q_Key
  kSequence,      ///< a sequence that the transport discards silently
  kDuplicate,     ///< a response that is not, or no longer, expected
  kNoReceive,     ///< UC or UD without a receive request, or UD with one that is too short
  kUcMessage,     ///< rest of a UC message that lost a packet or was refused
  kResources,     ///< no room for another duplicate request, or too much work for a turn
  kNoQp,          ///< addressed to this port, but to no existing QP
  kDcKey,         ///< wrong DC access key
  kDcConnection,  ///< belongs to no connection of the DC target, and opens none
  kCount,
};
std::string_view to_string(Drop drop);

struct PortCounters {
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_bytes = 0;  ///< frames without FCS
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t rx_multicast_packets = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(Drop::kCount)> dropped{};  ///< by reason

  std::uint64_t dropped_for(Drop drop) const { return dropped[static_cast<std::size_t>(drop)]; }
};

}  // namespace softhca::rdma
