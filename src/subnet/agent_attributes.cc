// The attributes of an agent, one by one (IBTA 14.2.5).
#include <algorithm>
#include <cstring>

#include "subnet/agent.h"
#include "subnet/numbers.h"
#include "util/endian.h"

namespace softhca::subnet {

using spec::infiniband::kFirstMulticastLid;
using spec::infiniband::kLmcMax;

namespace {

constexpr std::uint32_t kLow16 = 0xFFFF;

std::uint32_t high(std::uint32_t modifier) { return modifier >> 16; }  // no format: divides it
std::uint32_t low(std::uint32_t modifier) { return modifier & kLow16; }

template <class Table>
void show(const Table& from, std::span<std::byte, 64> out) {
  std::ranges::fill(out, std::byte{0});
  const auto size = std::min(out.size(), from.size());
  if (size != 0) std::memcpy(out.data(), from.data(), size);
}

}  // namespace

std::uint8_t Agent::port_of(std::uint32_t number, std::uint8_t arrival) const {
  if (number == 0 && !is_switch()) return arrival;
  return has_port(number) && number < kNoPort ? static_cast<std::uint8_t>(number) : kNoPort;
}

MadStatus Agent::node_description(const Request& request) {
  show(identity_.description, request.data);
  return MadStatus::OK;
}

MadStatus Agent::node_info(const Request& request) {
  using Info = spec::infiniband::node_info;
  show(std::array<std::byte, 0>(), request.data);
  const util::MutableView<Info> out(request.data);
  out.set(Info::base_version, 1);
  out.set(Info::class_version, 1);
  out.set(Info::node_type, static_cast<std::uint32_t>(identity_.type));
  out.set(Info::num_ports, identity_.ports);
  out.set(Info::system_image_guid, identity_.node_guid);
  out.set(Info::node_guid, identity_.node_guid);
  const auto more = is_switch() ? 0u : request.arrival - 1u;
  out.set(Info::port_guid, identity_.port_guid + more);
  out.set(Info::partition_cap, identity_.partition_cap);
  out.set(Info::device_id, identity_.device_id);
  out.set(Info::local_port_num, request.arrival);
  out.set(Info::vendor_id, identity_.vendor_id);
  return MadStatus::OK;
}

MadStatus Agent::switch_info(const Request& request) {
  using Info = spec::infiniband::switch_info;
  const util::MutableView<Info> kept(switch_info_);
  if (request.method == Method::SET) {
    const util::View<Info> to(request.data);
    if (to.get(Info::linear_fdb_top) >= kLinearLids) return MadStatus::INVALID_VALUE;
    kept.set(Info::linear_fdb_top, to.get(Info::linear_fdb_top));
    kept.set(Info::life_time_value, to.get(Info::life_time_value));
    kept.set(Info::default_primary_port, to.get(Info::default_primary_port));
    kept.set(Info::default_not_primary_port, to.get(Info::default_not_primary_port));
    if (to.get(Info::port_state_change) != 0) kept.set(Info::port_state_change, 0);
  }
  show(switch_info_, request.data);
  return MadStatus::OK;
}

/// Entry 0 is the port's own GUID and cannot change.
MadStatus Agent::guid_info(const Request& request) {
  const auto port = is_switch() ? std::uint8_t{0} : request.arrival;
  if (request.modifier != 0) return MadStatus::INVALID_VALUE;
  show(ports_[port].guids, request.data);
  return MadStatus::OK;
}

MadStatus Agent::port_info(const Request& request) {
  const auto port = port_of(request.modifier, request.arrival);
  if (port == kNoPort) return MadStatus::INVALID_VALUE;
  const bool reregister = util::View<PortInfo>(request.data).get(PortInfo::client_reregister) != 0;
  if (request.method == Method::SET) {
    const auto status = set_port_info(port, util::View<PortInfo>(request.data));
    if (status != MadStatus::OK) return status;
  }
  show(ports_[port].info, request.data);
  const util::MutableView<PortInfo> out(request.data);
  // IBTA 14.2.5.6: the arrival port, whichever port the request selects.
  out.set(PortInfo::local_port_num, request.arrival);
  // IBTA 14.2.4.2: from level 1 on, a requester without the M_Key reads it as 0.
  const auto own = is_switch() ? std::uint8_t{0} : port;
  if (!request.knows_key && port_info(own).get(PortInfo::m_key_protect_bits) != 0) {
    out.set(PortInfo::m_key, 0);
  }
  if (request.method == Method::SET) out.set(PortInfo::client_reregister, reregister);
  return MadStatus::OK;
}

namespace {

/// IBTA 7.2.7: the state changes that a manager may request.
bool may_go(PortState from, PortState to) {
  switch (to) {
    case PortState::NO_CHANGE:
    case PortState::DOWN:
      return true;
    case PortState::ARMED:
      return from == PortState::INIT || from == PortState::ARMED;
    case PortState::ACTIVE:
      return from == PortState::ARMED || from == PortState::ACTIVE;
    case PortState::INIT:
      break;
  }
  return false;
}

}  // namespace

/// Applies all of it or nothing.
MadStatus Agent::set_port_info(std::uint8_t port, util::View<PortInfo> to) {
  using P = PortInfo;
  const auto kept = info(port);
  const bool outer = is_switch() && port != 0;
  const auto wanted = PortState(to.get(P::port_state));
  const auto mtu = to.get(P::neighbor_mtu);
  const auto lanes = to.get(P::operational_vls);
  const auto lid = to.get(P::lid);
  if (!may_go(state(port), wanted) || mtu > kept.get(P::mtu_cap) || lanes > kept.get(P::vl_cap) ||
      (!outer && (lid == 0 || lid >= kFirstMulticastLid))) {
    return MadStatus::INVALID_VALUE;
  }
  const auto copy = [&](auto... fields) { (kept.set(fields, to.get(fields)), ...); };
  if (!outer) {
    copy(P::m_key, P::gid_prefix, P::lid, P::master_sm_lid, P::m_key_lease_period,
         P::m_key_protect_bits, P::lmc, P::master_sm_sl, P::init_type, P::subnet_timeout,
         P::m_key_violations, P::p_key_violations, P::q_key_violations);
  }
  copy(P::vl_high_limit, P::vl_stall_count, P::hoq_life, P::enforcement, P::local_phy_errors,
       P::overrun_errors);
  if (mtu != 0) kept.set(P::neighbor_mtu, mtu);
  if (lanes != 0) kept.set(P::operational_vls, lanes);
  // A link that is set to DOWN comes up again, as its LinkDownDefaultState says.
  if (wanted != PortState::NO_CHANGE && ports_[port].link) {
    kept.set(P::port_state,
             static_cast<std::uint32_t>(wanted == PortState::DOWN ? PortState::INIT : wanted));
  }
  handle_change_(port);
  return MadStatus::OK;
}

MadStatus Agent::p_key_table(const Request& request) {
  const auto port = is_switch() ? port_of(high(request.modifier), 0) : request.arrival;
  if (port == kNoPort || low(request.modifier) != 0) return MadStatus::INVALID_VALUE;
  auto& pkeys = ports_[port].pkeys;
  if (request.method == Method::SET) {
    for (std::size_t i = 0; i != pkeys.size(); ++i) {
      pkeys[i] = util::load_be16(&request.data[2 * i]);
    }
    handle_change_(port);
  }
  show(std::array<std::byte, 0>(), request.data);
  for (std::size_t i = 0; i != pkeys.size(); ++i) util::store_be16(&request.data[2 * i], pkeys[i]);
  return MadStatus::OK;
}

/// A switch has one table for each pair of ports. Here the lane depends on the egress port alone,
/// so one table serves all ingress ports.
MadStatus Agent::sl_to_vl_table(const Request& request) {
  // no format: the modifier's fields
  const auto port = is_switch() ? port_of(request.modifier & 0xFF, 0) : request.arrival;
  if (port == kNoPort) return MadStatus::INVALID_VALUE;
  auto& lanes = ports_[port].virtual_lanes;
  if (request.method == Method::SET) {
    std::memcpy(lanes.data(), request.data.data(), lanes.size());
    handle_change_(port);
  }
  show(lanes, request.data);
  return MadStatus::OK;
}

/// Stored without effect: there is one lane.
MadStatus Agent::vl_arbitration(const Request& request) {
  const auto block = high(request.modifier);
  const auto port = is_switch() ? port_of(low(request.modifier), 0) : request.arrival;
  if (port == kNoPort || block == 0 || block > ports_[port].arbitration.size()) {
    return MadStatus::INVALID_VALUE;
  }
  auto& table = ports_[port].arbitration[block - 1];
  if (request.method == Method::SET) std::ranges::copy(request.data, table.begin());
  show(table, request.data);
  return MadStatus::OK;
}

MadStatus Agent::linear_forwarding(const Request& request) {
  const auto first = std::size_t{request.modifier} * kLidsInBlock;
  if (request.modifier >= kLinearLids / kLidsInBlock) return MadStatus::INVALID_VALUE;
  for (std::size_t i = 0; i != kLidsInBlock; ++i) {
    if (request.method == Method::SET) {
      const auto port = static_cast<std::uint8_t>(request.data[i]);
      linear_[first + i] = has_port(port) ? port : kNoPort;
    }
    request.data[i] = std::byte{linear_[first + i]};
  }
  if (request.method == Method::SET) handle_change_(0);
  return MadStatus::OK;
}

MadStatus Agent::multicast_forwarding(const Request& request) {
  const auto block = request.modifier & 0x1FF;   // no format: the modifier's fields
  const auto position = request.modifier >> 28;  // no format: the modifier's fields
  const auto first = std::size_t{block} * kGroupsInBlock;
  if (first >= kMulticastLids) return MadStatus::INVALID_VALUE;
  for (std::size_t i = 0; i != kGroupsInBlock; ++i) {
    auto& ports = multicast_[(first + i) * kPositions + position];
    if (request.method == Method::SET) ports = util::load_be16(&request.data[2 * i]);
    util::store_be16(&request.data[2 * i], ports);
  }
  if (request.method == Method::SET) handle_change_(0);
  return MadStatus::OK;
}

MadStatus Agent::sm_info(const Request& request) {
  using Info = spec::infiniband::sm_info;
  constexpr std::uint32_t kMaster = 3;
  if (!identity_.is_manager) return MadStatus::UNSUPPORTED_ATTRIBUTE;
  show(std::array<std::byte, 0>(), request.data);
  const util::MutableView<Info> out(request.data);
  out.set(Info::guid, identity_.port_guid);
  out.set(Info::sm_state, kMaster);
  return MadStatus::OK;
}

/// There are no notices to report: the agent sends no traps.
MadStatus Agent::notice(const Request& request) {
  show(std::array<std::byte, 0>(), request.data);
  return MadStatus::OK;
}

}  // namespace softhca::subnet
