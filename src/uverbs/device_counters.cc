#include "uverbs/device_counters.h"

#include <algorithm>
#include <iterator>

#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {
namespace {

using spec::command_opcode;
using Vport = spec::query_vport_counter_out;
using Queues = spec::query_q_counter_out;
using Congestion = spec::query_cong_statistics_out;

/// Index of each counter in DeviceCounters.
enum Place : std::size_t {
  kReceivedBytes,
  kReceivedPackets,
  kReceivedGroupBytes,
  kReceivedGroupPackets,
  kSentBytes,
  kSentPackets,
  kSentGroupBytes,
  kSentGroupPackets,
  kQueues,  ///< start of the counters of kQueueCounters
};

/// "data" counters are in words of 4 bytes (IBTA 16.1.4.5, PortXmitData).
constexpr unsigned kLogWord = 2;

struct PortCounter {
  std::string_view name;
  Place first, second;
  unsigned shift = 0;
};
/// The counters of mlx5_ib's pma_cnt_ext_assign.
constexpr PortCounter kPortCounters[] = {
    {"port_xmit_data", kSentBytes, kSentGroupBytes, kLogWord},
    {"port_rcv_data", kReceivedBytes, kReceivedGroupBytes, kLogWord},
    {"port_xmit_packets", kSentPackets, kSentGroupPackets},
    {"port_rcv_packets", kReceivedPackets, kReceivedGroupPackets},
    {"unicast_xmit_packets", kSentPackets, kQueues},
    {"unicast_rcv_packets", kReceivedPackets, kQueues},
    {"multicast_xmit_packets", kSentGroupPackets, kQueues},
    {"multicast_rcv_packets", kReceivedGroupPackets, kQueues},
};
/// Counters of InfiniBand links only: a RoCE port counts none of them.
constexpr std::string_view kLinkCounters[] = {"VL15_dropped",
                                              "excessive_buffer_overrun_errors",
                                              "link_downed",
                                              "link_error_recovery",
                                              "local_link_integrity_errors",
                                              "port_rcv_constraint_errors",
                                              "port_rcv_errors",
                                              "port_rcv_remote_physical_errors",
                                              "port_rcv_switch_relay_errors",
                                              "port_xmit_constraint_errors",
                                              "port_xmit_discards",
                                              "port_xmit_wait",
                                              "symbol_error"};

/// Calls `visit(name, field)` for each counter of a set.
template <class Visit>
void for_each_queue_counter(Visit&& visit) {
  visit("rx_write_requests", Queues::rx_write_requests);
  visit("rx_read_requests", Queues::rx_read_requests);
  visit("rx_atomic_requests", Queues::rx_atomic_requests);
  visit("rx_dct_connect", Queues::rx_dct_connect);
  visit("out_of_buffer", Queues::out_of_buffer);
  visit("out_of_sequence", Queues::out_of_sequence);
  visit("duplicate_request", Queues::duplicate_request);
  visit("rnr_nak_retry_err", Queues::rnr_nak_retry_err);
  visit("packet_seq_err", Queues::packet_seq_err);
  visit("implied_nak_seq_err", Queues::implied_nak_seq_err);
  visit("local_ack_timeout_err", Queues::local_ack_timeout_err);
  visit("resp_local_length_error", Queues::resp_local_length_error);
  visit("resp_cqe_error", Queues::resp_cqe_error);
  visit("req_cqe_error", Queues::req_cqe_error);
  visit("req_remote_invalid_request", Queues::req_remote_invalid_request);
  visit("req_remote_access_errors", Queues::req_remote_access_errors);
  visit("resp_remote_access_errors", Queues::resp_remote_access_errors);
  visit("resp_cqe_flush_error", Queues::resp_cqe_flush_error);
  visit("req_cqe_flush_error", Queues::req_cqe_flush_error);
  visit("req_transport_retries_exceeded", Queues::req_transport_retries_exceeded);
  visit("req_rnr_retries_exceeded", Queues::req_rnr_retries_exceeded);
}
/// The same for the port's congestion control counters.
template <class Visit>
void for_each_congestion_counter(Visit&& visit) {
  visit("rp_cnp_ignored", Congestion::rp_cnp_ignored);
  visit("rp_cnp_handled", Congestion::rp_cnp_handled);
  visit("np_ecn_marked_roce_packets", Congestion::np_ecn_marked_roce_packets);
  visit("np_cnp_sent", Congestion::np_cnp_sent);
}

void put_traffic(const util::View<Vport>& from, DeviceCounters& to) {
  using Traffic = spec::traffic_counter;
  const auto put = [&](auto part, Place bytes, Place packets) {
    const auto counter = from.get(part);
    to[bytes] = counter.get(Traffic::octets);
    to[packets] = counter.get(Traffic::packets);
  };
  put(Vport::received_ib_unicast, kReceivedBytes, kReceivedPackets);
  put(Vport::received_ib_multicast, kReceivedGroupBytes, kReceivedGroupPackets);
  put(Vport::transmitted_ib_unicast, kSentBytes, kSentPackets);
  put(Vport::transmitted_ib_multicast, kSentGroupBytes, kSentGroupPackets);
}

}  // namespace

std::optional<DeviceCounters> read_counters(Device& device) {
  auto& commands = device.commands();
  DeviceCounters all{};
  const auto traffic = commands.execute<Vport>(
      Command<spec::query_vport_counter_in>(command_opcode::QUERY_VPORT_COUNTER));
  Command<spec::query_q_counter_in> ask(command_opcode::QUERY_Q_COUNTER);
  ask.set(spec::query_q_counter_in::counter_set_id, device.counter_set());
  const auto queues = commands.execute<Queues>(ask);
  const auto congestion = commands.execute<Congestion>(
      Command<spec::query_cong_statistics_in>(command_opcode::QUERY_CONG_STATISTICS));
  if (!traffic || !queues || !congestion) return std::nullopt;
  put_traffic(*traffic, all);
  std::size_t at = kQueues;
  for_each_queue_counter([&](auto, auto field) { all[at++] = queues->get(field); });
  for_each_congestion_counter([&](auto, auto field) { all[at++] = congestion->get(field); });
  return all;
}

std::optional<std::uint64_t> port_counter(const DeviceCounters& all, std::string_view name) {
  if (std::ranges::find(kLinkCounters, name) != std::end(kLinkCounters)) return 0;
  const auto* const row = std::ranges::find(kPortCounters, name, &PortCounter::name);
  if (row == std::end(kPortCounters)) return std::nullopt;
  const auto second = row->second == kQueues ? 0 : all[row->second];
  return (all[row->first] + second) >> row->shift;
}

std::optional<std::uint64_t> hardware_counter(const DeviceCounters& all, std::string_view name) {
  std::optional<std::uint64_t> value;
  std::size_t at = kQueues;
  const auto look = [&](std::string_view its, auto) {
    if (its == name) value = all[at];
    ++at;
  };
  for_each_queue_counter(look);
  for_each_congestion_counter(look);
  return value;
}

}  // namespace softhca::uverbs
