#include "rdma/counters.h"

namespace softhca::rdma {
namespace {

constexpr QpCounterInfo kQpCounters[] = {
    {"rx_write_requests", "requests", "RDMA WRITE requests received",
     &QpCounters::rx_write_requests},
    {"rx_read_requests", "requests", "RDMA READ requests received", &QpCounters::rx_read_requests},
    {"rx_atomic_requests", "requests", "atomic requests received", &QpCounters::rx_atomic_requests},
    {"rx_dct_connect", "connections", "opened by peers of a DC target",
     &QpCounters::rx_dct_connect},
    {"out_of_buffer", "packets", "no receive work request was posted", &QpCounters::out_of_buffer},
    {"out_of_sequence", "packets", "requests after a gap in the PSNs",
     &QpCounters::out_of_sequence},
    {"duplicate_request", "packets", "requests seen before", &QpCounters::duplicate_request},
    {"rnr_naks_sent", "packets", "receiver not ready answers", &QpCounters::rnr_naks_sent},
    {"resp_local_length_error", "errors", "message longer than its receive buffer",
     &QpCounters::resp_local_length_error},
    {"resp_cqe_error", "completions", "receives that ended in an error",
     &QpCounters::resp_cqe_error},
    {"resp_cqe_flush_error", "completions", "receives that were flushed",
     &QpCounters::resp_cqe_flush_error},
    {"resp_remote_access_errors", "errors", "requests refused by a memory key or QP access flag",
     &QpCounters::resp_remote_access_errors},
    {"resp_remote_invalid_request", "errors", "requests refused as invalid",
     &QpCounters::resp_remote_invalid_request},
    {"rnr_naks_received", "packets", "the peer was not ready", &QpCounters::rnr_naks_received},
    {"rnr_retries_exceeded", "errors", "RNR retries used up", &QpCounters::rnr_retries_exceeded},
    {"transport_retries_exceeded", "errors", "retries used up",
     &QpCounters::transport_retries_exceeded},
    {"packet_seq_err", "packets", "NAKs for a sequence error received",
     &QpCounters::packet_seq_err},
    {"implied_nak_seq_err", "events", "an answer skipped a READ or atomic",
     &QpCounters::implied_nak_seq_err},
    {"local_ack_timeout_err", "events", "no answer in time", &QpCounters::local_ack_timeout_err},
    {"retransmitted_packets", "packets", "sent again", &QpCounters::retransmitted_packets},
    {"req_cqe_error", "completions", "send requests that ended in an error",
     &QpCounters::req_cqe_error},
    {"req_cqe_flush_error", "completions", "send requests that were flushed",
     &QpCounters::req_cqe_flush_error},
    {"req_remote_invalid_request", "errors", "the peer refused a request as invalid",
     &QpCounters::req_remote_invalid_request},
    {"req_remote_access_errors", "errors", "the peer refused an access",
     &QpCounters::req_remote_access_errors},
    {"req_remote_operation_errors", "errors", "the peer failed",
     &QpCounters::req_remote_operation_errors},
};
static_assert(sizeof(kQpCounters) / sizeof(kQpCounters[0]) ==
              sizeof(QpCounters) / sizeof(std::uint64_t));

constexpr std::string_view kDrops[] = {
    "malformed packet",
    "wrong ICRC",
    "the QP's state takes no such packet",
    "opcode of another transport service",
    "not from the QP's peer, or not to its address",
    "wrong P_Key",
    "wrong Q_Key",
    "out of sequence",
    "answer to nothing outstanding",
    "no receive work request",
    "rest of a broken UC message",
    "no room for another duplicate request",
    "no such QP",
    "wrong DC access key",
    "of no dynamic connection",
};
static_assert(sizeof(kDrops) / sizeof(kDrops[0]) == static_cast<std::size_t>(Drop::kCount));

}  // namespace

std::span<const QpCounterInfo> qp_counter_table() { return kQpCounters; }

std::string_view to_string(Drop drop) { return kDrops[static_cast<std::size_t>(drop)]; }

}  // namespace softhca::rdma
