#include "subnet/agent.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "subnet/numbers.h"
#include "util/bits.h"
#include "util/endian.h"

namespace softhca::subnet {

using spec::infiniband::kDefaultPkey;
using spec::infiniband::kServiceLevels;
using spec::infiniband::node_type;
using spec::infiniband::port_physical_state;
using spec::infiniband::sm_attribute;
using SwitchInfo = spec::infiniband::switch_info;

/// An attribute by its number, with its methods and its handler.
struct Agent::Attribute {
  sm_attribute number;
  bool settable;
  bool of_switch;  ///< only a switch has it
  Handler handler;
};

const std::array<Agent::Attribute, 12> Agent::kAttributes = {{
    {sm_attribute::NOTICE, true, false, &Agent::notice},
    {sm_attribute::NODE_DESCRIPTION, false, false, &Agent::node_description},
    {sm_attribute::NODE_INFO, false, false, &Agent::node_info},
    {sm_attribute::SWITCH_INFO, true, true, &Agent::switch_info},
    {sm_attribute::GUID_INFO, true, false, &Agent::guid_info},
    {sm_attribute::PORT_INFO, true, false, &Agent::port_info},
    {sm_attribute::P_KEY_TABLE, true, false, &Agent::p_key_table},
    {sm_attribute::SL_TO_VL_TABLE, true, false, &Agent::sl_to_vl_table},
    {sm_attribute::VL_ARBITRATION, true, false, &Agent::vl_arbitration},
    {sm_attribute::LINEAR_FORWARDING, true, true, &Agent::linear_forwarding},
    {sm_attribute::MULTICAST_FORWARDING, true, true, &Agent::multicast_forwarding},
    {sm_attribute::SM_INFO, false, false, &Agent::sm_info},
}};

Agent::Agent(Identity identity, std::function<void(std::uint8_t)> handle_change)
    : identity_(std::move(identity)),
      first_port_(identity_.type == node_type::SWITCH ? 0 : 1),
      handle_change_(std::move(handle_change)),
      ports_(identity_.ports + std::size_t{1}) {
  assert(identity_.partition_cap <= kPkeysInBlock);
  for (std::size_t port = first_port_; port != ports_.size(); ++port) {
    reset_port(static_cast<std::uint8_t>(port));
  }
  if (!is_switch()) return;
  linear_.assign(kLinearLids, kNoPort);
  multicast_.assign(std::size_t{kMulticastLids} * kPositions, 0);
  const util::MutableView<SwitchInfo> about(switch_info_);
  about.set(SwitchInfo::linear_fdb_cap, kLinearLids);
  about.set(SwitchInfo::multicast_fdb_cap, kMulticastLids);
  about.set(SwitchInfo::partition_enforcement_cap, 0);
  about.set(SwitchInfo::enhanced_port0, 1);
  set_link(0, true);
}

/// Sets the power-on state.
void Agent::reset_port(std::uint8_t port) {
  auto& kept = ports_[port];
  kept = {};
  kept.pkeys.assign(identity_.partition_cap, 0);
  kept.pkeys[0] = kDefaultPkey;
  const auto out = info(port);
  const bool outer = is_switch() && port != 0;  // has neither LID nor GIDs
  out.set(PortInfo::capability_mask, outer ? 0 : identity_.capability_mask);
  out.set(PortInfo::local_port_num, port);
  out.set(PortInfo::link_width_enabled, kWidths);
  out.set(PortInfo::link_width_supported, kWidths);
  out.set(PortInfo::link_width_active, kWidth4x);
  out.set(PortInfo::link_speed_supported, kSpeeds);
  out.set(PortInfo::link_speed_enabled, kSpeeds);
  out.set(PortInfo::link_speed_active, kSpeed10);
  out.set(PortInfo::link_down_default, static_cast<std::uint32_t>(port_physical_state::POLLING));
  out.set(PortInfo::port_state, static_cast<std::uint32_t>(PortState::DOWN));
  out.set(PortInfo::port_physical_state, static_cast<std::uint32_t>(port_physical_state::POLLING));
  out.set(PortInfo::neighbor_mtu, kMtu4096);
  out.set(PortInfo::mtu_cap, kMtu4096);
  out.set(PortInfo::vl_cap, kOneLane);
  out.set(PortInfo::operational_vls, kOneLane);
  out.set(PortInfo::vl_arb_high_cap, kArbitrationEntries);
  out.set(PortInfo::vl_arb_low_cap, kArbitrationEntries);
  if (outer) return;
  out.set(PortInfo::gid_prefix, kDefaultPrefix);
  out.set(PortInfo::guid_cap, 1);
  const auto more = is_switch() ? 0u : port - 1u;
  util::store_be64(kept.guids.data(), identity_.port_guid + more);
}

void Agent::set_link(std::uint8_t port, bool up) {
  if (std::exchange(ports_[port].link, up) == up) return;
  const auto out = info(port);
  // IBTA 7.2.5: a link that comes up waits in INIT for its manager.
  out.set(PortInfo::port_state, static_cast<std::uint32_t>(up ? PortState::INIT : PortState::DOWN));
  out.set(
      PortInfo::port_physical_state,
      static_cast<std::uint32_t>(up ? port_physical_state::LINK_UP : port_physical_state::POLLING));
  if (is_switch()) {
    util::MutableView<SwitchInfo>(switch_info_).set(SwitchInfo::port_state_change, 1);
  }
  handle_change_(port);
}

std::uint8_t Agent::virtual_lane(std::uint8_t port, std::uint8_t service_level) const {
  const auto pair = static_cast<std::uint8_t>(ports_[port].virtual_lanes[service_level / 2]);
  // no format: a nibble for each service level
  return service_level % 2 == 0 ? static_cast<std::uint8_t>(pair >> 4) : pair & 0x0F;
}

bool Agent::has_member(Lid group, std::uint8_t port) const {
  const auto index = std::size_t{group.value()} - spec::infiniband::kFirstMulticastLid;
  if (group.value() < spec::infiniband::kFirstMulticastLid || index >= kMulticastLids) return false;
  return util::has_bit(multicast_[index * kPositions + port / kPortsInMask], port % kPortsInMask);
}

// Directed routes --------------------------------------------------------------------------------

Agent::Hop Agent::step(Mad& mad, std::uint8_t port) const {
  const util::MutableView<Smp> smp(mad);
  auto pointer = smp.get(Smp::hop_pointer);
  const auto count = smp.get(Smp::hop_count);
  if (count >= kHopsMax) return Hop::kNowhere;
  const auto initial = smp.sub(Smp::initial_path), back = smp.sub(Smp::return_path);
  const auto exists = [&](std::byte number) { return has_port(static_cast<std::size_t>(number)); };
  if (smp.get(Smp::direction) == 0) {
    if (pointer == count) {  // IBTA 14.2.2.2: the route ends here
      if (count != 0) back[pointer] = std::byte{port};
      smp.set(Smp::hop_pointer, pointer + 1);
      return Hop::kHere;
    }
    if (pointer > count || !is_switch()) return Hop::kNowhere;
    if (pointer != 0) back[pointer] = std::byte{port};
    smp.set(Smp::hop_pointer, ++pointer);
    return exists(initial[pointer]) ? Hop::kOnwards : Hop::kNowhere;
  }
  // IBTA 14.2.2.4: a response on its way back.
  if (pointer == 1) {
    smp.set(Smp::hop_pointer, 0);
    return Hop::kHere;
  }
  if (pointer < 1 || pointer > count || !is_switch()) return Hop::kNowhere;
  smp.set(Smp::hop_pointer, --pointer);
  return exists(back[pointer]) ? Hop::kOnwards : Hop::kNowhere;
}

void Agent::turn_back(Mad& mad) {
  const util::MutableView<Smp> smp(mad);
  if (MadClass(smp.get(Smp::mgmt_class)) != MadClass::SUBN_DIRECTED_ROUTE) return;
  const auto pointer = smp.get(Smp::hop_pointer);
  if (pointer != 0) smp.set(Smp::hop_pointer, pointer - 1);
}

std::uint8_t Agent::next_port(const Mad& mad) {
  const util::View<Smp> smp(mad);
  const auto pointer = smp.get(Smp::hop_pointer);
  if (pointer >= kHopsMax) return kNoPort;
  const auto path =
      smp.get(Smp::direction) == 0 ? smp.get(Smp::initial_path) : smp.get(Smp::return_path);
  return static_cast<std::uint8_t>(path[pointer]);
}

// Requests ---------------------------------------------------------------------------------------

bool Agent::knows_key(const Mad& mad, std::uint8_t port) const {
  const auto key = port_info(is_switch() ? 0 : port).get(PortInfo::m_key);
  return key == 0 || key == util::View<Smp>(mad).get(Smp::m_key);
}

/// IBTA 14.2.4: with a wrong M_Key a Set is refused, and so is a Get if the protection level
/// demands it.
bool Agent::admits(Method method, std::uint8_t port) {
  const auto kept = info(is_switch() ? 0 : port);
  if (method == Method::GET && kept.get(PortInfo::m_key_protect_bits) < 2) return true;
  const auto violations = kept.get(PortInfo::m_key_violations);
  kept.set(PortInfo::m_key_violations, std::min(violations + 1, PortInfo::m_key_violations.kMax));
  return false;
}

MadStatus Agent::dispatch(const Request& request, std::uint16_t attribute) {
  const auto* found = std::ranges::find(kAttributes, sm_attribute(attribute), &Attribute::number);
  if (found == kAttributes.end() || (found->of_switch && !is_switch()) ||
      (request.method == Method::SET && !found->settable)) {
    return MadStatus::UNSUPPORTED_ATTRIBUTE;
  }
  return (this->*found->handler)(request);
}

bool Agent::answer(Mad& mad, std::uint8_t port, bool trusted) {
  const util::MutableView<Smp> smp(mad);
  const auto method = Method(smp.get(Smp::method));
  const bool directed = MadClass(smp.get(Smp::mgmt_class)) == MadClass::SUBN_DIRECTED_ROUTE;
  const bool is_request = (method == Method::GET || method == Method::SET) && has_port(port);
  const bool knows = is_request && (trusted || knows_key(mad, port));
  if (!is_request || (!knows && !admits(method, port))) {
    ++counters_.discarded;
    return false;
  }
  auto status = MadStatus::UNSUPPORTED_VERSION;
  if (smp.get(Smp::base_version) == 1 && smp.get(Smp::class_version) == 1) {
    status = dispatch({.method = method,
                       .modifier = smp.get(Smp::attribute_modifier),
                       .arrival = port,
                       .knows_key = knows,
                       .data = smp.sub(Smp::data)},
                      static_cast<std::uint16_t>(smp.get(Smp::attribute_id)));
  }
  smp.set(Smp::method, static_cast<std::uint32_t>(Method::GET_RESP));
  smp.set(Smp::status, static_cast<std::uint32_t>(status));
  if (directed) smp.set(Smp::direction, 1);
  ++(status == MadStatus::OK ? counters_.answered : counters_.refused);
  return true;
}

}  // namespace softhca::subnet
