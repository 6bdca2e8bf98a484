// PPCNT (PRM Table 114 and following): the port's counters, made from what the Ethernet and the
// RDMA side have counted. Groups and fields that nothing can move on this wire (pause frames, FEC,
// symbol errors) are there and stay 0.

#include "connectx/device.h"
#include "connectx/port/port_registers.h"
#include "connectx/port/vport.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {

namespace {

namespace reg = spec::connectx;

/// A port counts whole frames, with their four bytes of FCS.
constexpr std::uint64_t kFcs = 4;

struct Traffic {
  std::uint64_t unicast = 0;
  std::uint64_t multicast = 0;
  std::uint64_t broadcast = 0;
  std::uint64_t octets = 0;

  std::uint64_t frames() const { return unicast + multicast + broadcast; }
};

Traffic received(Device& device) {
  const auto& eth = device.vport().counters();
  const auto& rdma = device.rdma().counters();
  Traffic t{
      .unicast = eth.received_eth_unicast.packets + rdma.rx_packets - rdma.rx_multicast_packets,
      .multicast = eth.received_eth_multicast.packets + rdma.rx_multicast_packets,
      .broadcast = eth.received_eth_broadcast.packets,
      .octets = eth.received_eth_unicast.octets + eth.received_eth_multicast.octets +
                eth.received_eth_broadcast.octets + rdma.rx_bytes};
  t.octets += kFcs * t.frames();
  return t;
}

Traffic transmitted(Device& device) {
  const auto& eth = device.vport().counters();
  const auto& rdma = device.rdma().counters();
  Traffic t{.unicast = eth.transmitted_eth_unicast.packets + rdma.tx_packets,
            .multicast = eth.transmitted_eth_multicast.packets,
            .broadcast = eth.transmitted_eth_broadcast.packets,
            .octets = eth.transmitted_eth_unicast.octets + eth.transmitted_eth_multicast.octets +
                      eth.transmitted_eth_broadcast.octets + rdma.tx_bytes};
  t.octets += kFcs * t.frames();
  return t;
}

void fill_ieee_802_3(Device& device, std::span<std::byte> counters) {
  using C = reg::ppcnt_ieee_802_3;
  const util::MutableView<C> out(counters);
  const auto rx = received(device);
  const auto tx = transmitted(device);
  out.set(C::a_frames_transmitted_ok, tx.frames());
  out.set(C::a_frames_received_ok, rx.frames());
  out.set(C::a_octets_transmitted_ok, tx.octets);
  out.set(C::a_octets_received_ok, rx.octets);
  out.set(C::a_multicast_frames_xmitted_ok, tx.multicast);
  out.set(C::a_broadcast_frames_xmitted_ok, tx.broadcast);
  out.set(C::a_multicast_frames_received_ok, rx.multicast);
  out.set(C::a_broadcast_frames_received_ok, rx.broadcast);
}

void fill_rfc_2863(Device& device, std::span<std::byte> counters) {
  using C = reg::ppcnt_rfc_2863;
  const util::MutableView<C> out(counters);
  const auto rx = received(device);
  const auto tx = transmitted(device);
  out.set(C::if_in_octets, rx.octets);
  out.set(C::if_in_ucast_pkts, rx.unicast);
  out.set(C::if_in_discards, device.vport().counters().received_discards);
  out.set(C::if_in_errors, device.vport().counters().received_errors.packets);
  out.set(C::if_out_octets, tx.octets);
  out.set(C::if_out_ucast_pkts, tx.unicast);
  out.set(C::if_out_errors, device.vport().counters().transmit_errors.packets);
  out.set(C::if_in_multicast_pkts, rx.multicast);
  out.set(C::if_in_broadcast_pkts, rx.broadcast);
  out.set(C::if_out_multicast_pkts, tx.multicast);
  out.set(C::if_out_broadcast_pkts, tx.broadcast);
}

void fill_rfc_2819(Device& device, std::span<std::byte> counters) {
  using C = reg::ppcnt_rfc_2819;
  const util::MutableView<C> out(counters);
  const auto rx = received(device);
  out.set(C::ether_stats_drop_events, device.vport().counters().received_discards);
  out.set(C::ether_stats_octets, rx.octets);
  out.set(C::ether_stats_pkts, rx.frames());
  out.set(C::ether_stats_broadcast_pkts, rx.broadcast);
  out.set(C::ether_stats_multicast_pkts, rx.multicast);
}

/// All traffic has priority 0.
void fill_per_priority(Device& device, unsigned priority, std::span<std::byte> counters) {
  if (priority != 0) return;
  using C = reg::ppcnt_per_priority;
  const util::MutableView<C> out(counters);
  const auto rx = received(device);
  const auto tx = transmitted(device);
  out.set(C::rx_octets, rx.octets);
  out.set(C::rx_frames, rx.frames());
  out.set(C::tx_octets, tx.octets);
  out.set(C::tx_frames, tx.frames());
  out.set(C::rx_discards, device.vport().counters().received_discards);
}

/// The InfiniBand counters of a RoCE port: octets in units of four.
void fill_infiniband_extended(Device& device, std::span<std::byte> counters) {
  using C = reg::ppcnt_ib_port_extended;
  const util::MutableView<C> out(counters);
  const auto& rdma = device.rdma().counters();
  out.set(C::port_xmit_data, rdma.tx_bytes / 4);
  out.set(C::port_rcv_data, rdma.rx_bytes / 4);
  out.set(C::port_xmit_pkts, rdma.tx_packets);
  out.set(C::port_rcv_pkts, rdma.rx_packets);
  out.set(C::port_unicast_xmit_pkts, rdma.tx_packets);
  out.set(C::port_unicast_rcv_pkts, rdma.rx_packets - rdma.rx_multicast_packets);
  out.set(C::port_multicast_rcv_pkts, rdma.rx_multicast_packets);
}

}  // namespace

bool fill_port_counters(Device& device, reg::ppcnt_group group, unsigned priority,
                        std::span<std::byte> counters) {
  using Group = reg::ppcnt_group;
  switch (group) {
    case Group::IEEE_802_3:
      fill_ieee_802_3(device, counters);
      return true;
    case Group::RFC_2863:
      fill_rfc_2863(device, counters);
      return true;
    case Group::RFC_2819:
      fill_rfc_2819(device, counters);
      return true;
    case Group::PER_PRIORITY:
      fill_per_priority(device, priority, counters);
      return true;
    case Group::INFINIBAND_EXTENDED_PORT:
      fill_infiniband_extended(device, counters);
      return true;
    case Group::RFC_3635:
    case Group::PER_TRAFFIC_CLASS:
    case Group::PHYSICAL_LAYER:
    case Group::INFINIBAND_PORT:
      return true;
    default:
      return false;
  }
}

}  // namespace softhca::connectx
