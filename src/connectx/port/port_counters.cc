#include "connectx/port/port_counters.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "connectx/port/network_port.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

constexpr std::string_view kPortCountersSection = "PRM Table 114";
/// "Group 63 indicates all groups. Only valid on Set() operation with clr bit set."
constexpr std::uint32_t kAllGroups = 63;
/// Traffic classes of the port: HCA_CAP.max_tc.
constexpr std::uint32_t kTrafficClasses = 8;

/// The manual's groups, and those that drivers read for link errors.
constexpr std::array kGroups{ppcnt_group::IEEE_802_3,
                             ppcnt_group::RFC_2863,
                             ppcnt_group::RFC_2819,
                             ppcnt_group::RFC_3635,
                             ppcnt_group::PER_PRIORITY,
                             ppcnt_group::PER_TRAFFIC_CLASS,
                             ppcnt_group::PHYSICAL_LAYER,
                             ppcnt_group::INFINIBAND_PORT,
                             ppcnt_group::INFINIBAND_EXTENDED_PORT};

TrafficTable received(const TrafficCounters& counters) {
  return counters.rx(Service::kEthernet, Way::kWire) + counters.rx(Service::kRdma, Way::kWire);
}

TrafficTable transmitted(const TrafficCounters& counters) {
  return counters.tx(Service::kEthernet, Way::kWire) + counters.tx(Service::kRdma, Way::kWire);
}

/// Octets as the port counts them, with the FCS.
std::uint64_t octets(const TrafficCounter& counter) {
  return counter.octets + NetworkPort::kFcs * counter.packets;
}

// Frames arrive whole or not at all, so the counters of symbol errors, wrong FCS, collisions and
// pause frames stay 0.

void fill_ieee_802_3(const TrafficCounters& counters, std::span<std::byte> bytes) {
  using C = ppcnt_ieee_802_3;
  const util::MutableView<C> out(bytes);
  const auto rx = received(counters);
  const auto tx = transmitted(counters);
  out.set(C::a_frames_transmitted_ok, tx.total().packets);
  out.set(C::a_frames_received_ok, rx.total().packets);
  out.set(C::a_octets_transmitted_ok, octets(tx.total()));
  out.set(C::a_octets_received_ok, octets(rx.total()));
  out.set(C::a_multicast_frames_xmitted_ok, tx.of(Cast::kMulticast).packets);
  out.set(C::a_broadcast_frames_xmitted_ok, tx.of(Cast::kBroadcast).packets);
  out.set(C::a_multicast_frames_received_ok, rx.of(Cast::kMulticast).packets);
  out.set(C::a_broadcast_frames_received_ok, rx.of(Cast::kBroadcast).packets);
  out.set(C::a_frame_too_long_errors, counters.received_oversize.packets);
}

void fill_rfc_2863(const TrafficCounters& counters, std::span<std::byte> bytes) {
  using C = ppcnt_rfc_2863;
  const util::MutableView<C> out(bytes);
  const auto rx = received(counters);
  const auto tx = transmitted(counters);
  out.set(C::if_in_octets, octets(rx.total()));
  out.set(C::if_in_ucast_pkts, rx.of(Cast::kUnicast).packets);
  out.set(C::if_in_discards, counters.all_received_discards());
  out.set(C::if_in_errors, counters.received_errors.packets + counters.received_oversize.packets);
  out.set(C::if_out_octets, octets(tx.total()));
  out.set(C::if_out_ucast_pkts, tx.of(Cast::kUnicast).packets);
  out.set(C::if_out_discards, counters.transmitted_discards);
  out.set(C::if_out_errors, counters.transmit_errors.packets);
  out.set(C::if_in_multicast_pkts, rx.of(Cast::kMulticast).packets);
  out.set(C::if_in_broadcast_pkts, rx.of(Cast::kBroadcast).packets);
  out.set(C::if_out_multicast_pkts, tx.of(Cast::kMulticast).packets);
  out.set(C::if_out_broadcast_pkts, tx.of(Cast::kBroadcast).packets);
}

void fill_rfc_2819(const TrafficCounters& counters, std::span<std::byte> bytes) {
  using C = ppcnt_rfc_2819;
  const util::MutableView<C> out(bytes);
  const auto rx = received(counters);
  const auto all = rx.total() + counters.received_oversize;  // "including bad packets"
  out.set(C::ether_stats_drop_events, counters.all_received_discards());
  out.set(C::ether_stats_octets, octets(all));
  out.set(C::ether_stats_pkts, all.packets);
  out.set(C::ether_stats_broadcast_pkts, rx.of(Cast::kBroadcast).packets);
  out.set(C::ether_stats_multicast_pkts, rx.of(Cast::kMulticast).packets);
  out.set(C::ether_stats_undersize_pkts, counters.received_undersize);
  out.set(C::ether_stats_oversize_pkts, counters.received_oversize.packets);
  const auto& sizes = counters.received_sizes;
  out.set(C::ether_stats_pkts64octets, sizes[0]);
  out.set(C::ether_stats_pkts65to127octets, sizes[1]);
  out.set(C::ether_stats_pkts128to255octets, sizes[2]);
  out.set(C::ether_stats_pkts256to511octets, sizes[3]);
  out.set(C::ether_stats_pkts512to1023octets, sizes[4]);
  out.set(C::ether_stats_pkts1024to1518octets, sizes[5]);
  out.set(C::ether_stats_pkts1519to2047octets, sizes[6]);
  out.set(C::ether_stats_pkts2048to4095octets, sizes[7]);
  out.set(C::ether_stats_pkts4096to8191octets, sizes[8]);
  out.set(C::ether_stats_pkts8192to10239octets, sizes[9]);
}

void fill_rfc_3635(const TrafficCounters& counters, std::span<std::byte> bytes) {
  using C = ppcnt_rfc_3635;
  const util::MutableView<C> out(bytes);
  out.set(C::dot3stats_internal_mac_transmit_errors, counters.transmitted_discards);
  out.set(C::dot3stats_frame_too_long, counters.received_oversize.packets);
}

void fill_per_priority(const TrafficCounters& counters, unsigned priority,
                       std::span<std::byte> bytes) {
  using C = ppcnt_per_priority;
  const util::MutableView<C> out(bytes);
  const auto rx = received(counters).of_priority(priority);
  const auto tx = transmitted(counters).of_priority(priority);
  out.set(C::rx_octets, octets(rx));
  out.set(C::rx_frames, rx.packets);
  out.set(C::tx_octets, octets(tx));
  out.set(C::tx_frames, tx.packets);
  out.set(C::rx_discards, counters.received_discards[priority]);
}

void fill_physical_layer(const TrafficCounters& counters, util::Duration since_clear,
                         std::span<std::byte> bytes) {
  using C = ppcnt_phys_layer;
  const util::MutableView<C> out(bytes);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_clear).count();
  out.set(C::time_since_last_clear, static_cast<std::uint64_t>(ms));
  out.set(C::link_down_events, static_cast<std::uint32_t>(counters.link_downs));
}

/// Fills in the InfiniBand counters, which saturate (IBTA 16.1.3.5).
void fill_infiniband(const TrafficCounters& counters, std::span<std::byte> bytes) {
  using C = ppcnt_ib_port;
  const util::MutableView<C> out(bytes);
  const auto set = [&](auto field, std::uint64_t value) {
    out.set(field, static_cast<std::uint32_t>(std::min<std::uint64_t>(value, field.kMax)));
  };
  set(C::link_downed_counter, counters.link_downs);
  set(C::port_rcv_errors, counters.received_errors.packets + counters.received_oversize.packets);
  set(C::port_xmit_discards, counters.transmitted_discards);
}

/// Fills in the extended InfiniBand counters of a RoCE port. Their octets are in units of four.
void fill_infiniband_extended(const TrafficCounters& counters, std::span<std::byte> bytes) {
  using C = ppcnt_ib_port_extended;
  const util::MutableView<C> out(bytes);
  const auto& rx = counters.rx(Service::kRdma, Way::kWire);
  const auto& tx = counters.tx(Service::kRdma, Way::kWire);
  out.set(C::port_xmit_data, tx.total().octets / 4);
  out.set(C::port_rcv_data, rx.total().octets / 4);
  out.set(C::port_xmit_pkts, tx.total().packets);
  out.set(C::port_rcv_pkts, rx.total().packets);
  out.set(C::port_unicast_xmit_pkts, tx.of(Cast::kUnicast).packets);
  out.set(C::port_multicast_xmit_pkts, tx.of(Cast::kMulticast).packets);
  out.set(C::port_unicast_rcv_pkts, rx.of(Cast::kUnicast).packets);
  out.set(C::port_multicast_rcv_pkts, rx.of(Cast::kMulticast).packets);
}

CommandResult check_index(ppcnt_group group, std::uint32_t prio_tc) {
  using Group = ppcnt_group;
  if (std::ranges::find(kGroups, group) == kGroups.end()) {
    return refuse(Status::BAD_PARAM, kPortCountersSection, "no such group of counters");
  }
  if (group == Group::PER_PRIORITY && prio_tc >= TrafficTable::kPriorities) {
    return refuse(Status::BAD_INDEX, kPortCountersSection, "prio_tc is no priority");
  }
  if (group == Group::PER_TRAFFIC_CLASS && prio_tc >= kTrafficClasses) {
    return refuse(Status::BAD_INDEX, kPortCountersSection, "prio_tc is no traffic class");
  }
  return {};
}

}  // namespace

CommandResult PortCounters::access(util::View<reg_ppcnt> in, bool write,
                                   util::MutableView<reg_ppcnt> out, util::Time now) {
  using R = reg_ppcnt;
  const bool clears = in.get(R::clr) != 0;
  const auto counters = out.sub(R::counter_set);
  std::ranges::fill(counters, std::byte{0});
  if (in.get(R::grp) == kAllGroups && write && clears) {
    for (const auto group : kGroups) clear(group, now);
    return {};
  }
  const auto group = Group(in.get(R::grp));
  if (auto checked = check_index(group, in.get(R::prio_tc)); !checked) return checked;
  fill(group, in.get(R::prio_tc), counters, now);
  // "Setting the clr bit will reset the counter value for all counters in the counter group."
  if (clears) clear(group, now);
  return {};
}

void PortCounters::clear(Group group, util::Time now) { cleared_[group] = {port_.counters(), now}; }

void PortCounters::fill(Group group, unsigned prio_tc, std::span<std::byte> out,
                        util::Time now) const {
  const auto cleared = cleared_.find(group);
  const bool never = cleared == cleared_.end();
  const auto counters = never ? port_.counters() : port_.counters().since(cleared->second.counters);
  switch (group) {
    case Group::IEEE_802_3:
      return fill_ieee_802_3(counters, out);
    case Group::RFC_2863:
      return fill_rfc_2863(counters, out);
    case Group::RFC_2819:
      return fill_rfc_2819(counters, out);
    case Group::RFC_3635:
      return fill_rfc_3635(counters, out);
    case Group::PER_PRIORITY:
      return fill_per_priority(counters, prio_tc, out);
    case Group::PER_TRAFFIC_CLASS:
      // One counter is the depth of the transmit queue in bytes. Frames leave the function
      // immediately, so it is always 0. The other counter is "valid only for Spectrum".
      return;
    case Group::PHYSICAL_LAYER:
      return fill_physical_layer(counters, now - (never ? started_ : cleared->second.at), out);
    case Group::INFINIBAND_PORT:
      return fill_infiniband(counters, out);
    case Group::INFINIBAND_EXTENDED_PORT:
      return fill_infiniband_extended(counters, out);
    default:
      return;
  }
}

}  // namespace softhca::connectx
