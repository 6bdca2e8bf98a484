#include "subnet/manager.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "subnet/numbers.h"
#include "util/endian.h"

namespace softhca::subnet {

using spec::infiniband::node_info;
using spec::infiniband::node_type;
using spec::infiniband::sm_attribute;

namespace {

constexpr util::Duration kPatience = std::chrono::milliseconds(20);
constexpr unsigned kTriesMax = 20;
/// Pause before the manager tries a node again that has not answered.
constexpr util::Duration kRest = std::chrono::seconds(1);
constexpr std::uint32_t kSubnetTimeout = 18;  ///< PortInfo:SubnetTimeOut: 4.096 us * 2^n

/// Sets the attributes and the state of a port. An external switch port has no LID.
void describe(util::MutableView<PortInfo> out, Lid lid, PortState state) {
  out.set(PortInfo::gid_prefix, kDefaultPrefix);
  out.set(PortInfo::lid, lid.value());
  out.set(PortInfo::master_sm_lid, Manager::kOwnLid.value());
  out.set(PortInfo::neighbor_mtu, kMtu4096);
  out.set(PortInfo::operational_vls, kOneLane);
  out.set(PortInfo::subnet_timeout, kSubnetTimeout);
  out.set(PortInfo::port_state, static_cast<std::uint32_t>(state));
}

/// The state to request so that the port becomes `state`: no transition leads from ACTIVE to ARMED
/// (IBTA 7.2.7).
PortState towards(const Manager::Node& node, PortState state) {
  const util::View<PortInfo> info(node.port_info);
  const bool active = PortState(info.get(PortInfo::port_state)) == PortState::ACTIVE;
  return active ? PortState::NO_CHANGE : state;
}

struct Request {
  sm_attribute attribute;
  Method method;
};

}  // namespace

Manager::Manager(Agent& own, std::function<void(std::uint8_t, const Mad&)> send)
    : own_(own), send_(std::move(send)), links_(own.identity().ports + std::size_t{1}) {
  for (std::size_t port = 0; port != links_.size(); ++port) {
    auto& node = links_[port].node;
    node.port = static_cast<std::uint8_t>(port);
    node.lid = lid_of(node.port);
  }
  auto& self = links_[0].node;
  self.up = true;
  self.port_guid = own.identity().port_guid;
  for (const auto state : {PortState::NO_CHANGE, PortState::ARMED, PortState::ACTIVE}) {
    set_own(sm_attribute::PORT_INFO, 0, [&](std::span<std::byte, 64> data) {
      describe(util::MutableView<PortInfo>(data), kOwnLid, state);
    });
  }
  forward(self, true);
}

void Manager::set_own(sm_attribute attribute, std::uint32_t modifier,
                      const std::function<void(std::span<std::byte, 64>)>& change) {
  Mad mad{};
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::base_version, 1);
  smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_LID_ROUTED));
  smp.set(Smp::class_version, 1);
  smp.set(Smp::attribute_id, static_cast<std::uint32_t>(attribute));
  smp.set(Smp::attribute_modifier, modifier);
  // A Get first: `change` replaces only some fields.
  for (const auto method : {Method::GET, Method::SET}) {
    smp.set(Smp::method, static_cast<std::uint32_t>(method));
    if (method == Method::SET) change(smp.sub(Smp::data));
    (void)own_.answer(mad, 0, true);
  }
}

/// Updates the linear forwarding table: packets to the node leave by its port.
void Manager::forward(const Node& node, bool there) {
  const auto lid = node.lid.value();
  set_own(sm_attribute::LINEAR_FORWARDING, lid / kLidsInBlock, [&](std::span<std::byte, 64> data) {
    data[lid % kLidsInBlock] = std::byte{there ? node.port : Agent::kNoPort};
  });
}

// Nodes ------------------------------------------------------------------------------------------

const Manager::Node* Manager::find(Lid lid) const {
  const auto port = std::size_t{lid.value()} - kOwnLid.value();
  return port < links_.size() && links_[port].node.up ? &links_[port].node : nullptr;
}

const Manager::Node* Manager::find(std::uint64_t port_guid) const {
  const auto found = std::ranges::find_if(
      links_, [&](const Link& link) { return link.node.up && link.node.port_guid == port_guid; });
  return found == links_.end() ? nullptr : &found->node;
}

std::size_t Manager::count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(links_, [](const Link& link) { return link.node.up; }));
}

void Manager::handle_link(std::uint8_t port, bool up) {
  auto& link = links_[port];
  link.there = up;
  link.node.up = false;
  link.deadline = util::kNever;
  forward(link.node, false);
  if (up) begin(link);
}

// Requests ---------------------------------------------------------------------------------------

void Manager::begin(Link& link) {
  link.step = Step::kNodeInfo;
  link.tries = 0;
  ask(link);
}

void Manager::next(Link& link) {
  link.step = static_cast<Step>(static_cast<unsigned>(link.step) + 1);
  link.tries = 0;
  link.deadline = util::kNever;
  if (link.step == Step::kDone) {
    link.node.up = true;
    return;
  }
  ask(link);
}

void Manager::ask(Link& link) {
  ++(link.tries++ == 0 ? counters_.requests : counters_.repeated);
  link.deadline = util::kNever;  // run() sets it, as it knows the time
  // A response to an earlier attempt counts too, so all attempts share one transaction ID.
  if (link.tries == 1) link.transaction = ++transactions_;
  Mad mad{};
  fill(link, mad);
  send_(link.node.port, mad);
}

void Manager::fill(const Link& link, Mad& mad) const {
  using enum sm_attribute;
  static constexpr std::array<Request, static_cast<std::size_t>(Step::kGivenUp)> kRequests{{
      {NODE_INFO, Method::GET},
      {NODE_DESCRIPTION, Method::GET},
      {PORT_INFO, Method::GET},
      {GUID_INFO, Method::GET},
      {P_KEY_TABLE, Method::SET},
      {SL_TO_VL_TABLE, Method::SET},
      {VL_ARBITRATION, Method::SET},
      {VL_ARBITRATION, Method::SET},
      {PORT_INFO, Method::SET},
      {PORT_INFO, Method::SET},
      {PORT_INFO, Method::SET},
      {},  // kDone sends no request
      {PORT_INFO, Method::GET},
  }};
  const auto& request = kRequests[static_cast<std::size_t>(link.step)];
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::base_version, 1);
  smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_DIRECTED_ROUTE));
  smp.set(Smp::class_version, 1);
  smp.set(Smp::method, static_cast<std::uint32_t>(request.method));
  smp.set(Smp::attribute_id, static_cast<std::uint32_t>(request.attribute));
  smp.set(Smp::transaction_id, link.transaction);
  smp.set(Smp::dr_slid, spec::infiniband::kPermissiveLid);
  smp.set(Smp::dr_dlid, spec::infiniband::kPermissiveLid);
  smp.set(Smp::hop_count, 1);
  smp.set(Smp::hop_pointer, 1);
  smp.sub(Smp::initial_path)[1] = std::byte{link.node.port};
  const auto data = smp.sub(Smp::data);
  const util::MutableView<PortInfo> info(data);
  switch (link.step) {
    case Step::kPkeys:
      util::store_be16(data.data(), spec::infiniband::kDefaultPkey);
      break;
    case Step::kArbitrationLow:
    case Step::kArbitrationHigh: {
      // VL0 only: two bytes an entry, lane and weight.
      data[1] = std::byte{255};
      const std::uint32_t block = link.step == Step::kArbitrationLow ? 1 : 3;
      smp.set(Smp::attribute_modifier, block << 16);  // no format: the block's half of it
      break;
    }
    case Step::kAttributes:
      describe(info, link.node.lid, PortState::NO_CHANGE);
      break;
    case Step::kArm:
      describe(info, link.node.lid, towards(link.node, PortState::ARMED));
      break;
    case Step::kActivate:
      describe(info, link.node.lid, towards(link.node, PortState::ACTIVE));
      break;
    default:
      break;
  }
  if (request.attribute == PORT_INFO) smp.set(Smp::attribute_modifier, link.node.number);
}

// Responses --------------------------------------------------------------------------------------

/// Sets the state of the switch's end of the link to that of the node's end.
void Manager::set_state(const Link& link, PortState state) {
  set_own(sm_attribute::PORT_INFO, link.node.port, [&](std::span<std::byte, 64> data) {
    describe(util::MutableView<PortInfo>(data), Lid(), state);
  });
}

/// Stores the attributes of a response. False if the node cannot be used.
bool Manager::take(Link& link, const Mad& mad) {
  const auto data = util::View<Smp>(mad).get(Smp::data);
  auto& node = link.node;
  switch (link.step) {
    case Step::kNodeInfo: {
      std::copy_n(data.begin(), node.info.size(), node.info.begin());
      const util::View<node_info> info(node.info);
      node.port_guid = info.get(node_info::port_guid);
      node.number = static_cast<std::uint8_t>(info.get(node_info::local_port_num));
      // The subnet has one switch.
      return node_type(info.get(node_info::node_type)) == node_type::CHANNEL_ADAPTER;
    }
    case Step::kNodeDescription:
      std::ranges::copy(data, node.description.begin());
      return true;
    case Step::kGetPortInfo:
    case Step::kSweep:
    case Step::kAttributes:
    case Step::kArm:
    case Step::kActivate:
      std::ranges::copy(data, node.port_info.begin());
      if (link.step == Step::kAttributes) {
        set_state(link, PortState::NO_CHANGE);
        forward(node, true);
      } else if (link.step == Step::kArm) {
        // The switch's end first: the node may send as soon as its own port is active.
        set_state(link, PortState::ARMED);
        set_state(link, PortState::ACTIVE);
      }
      return true;
    default:
      return true;
  }
}

/// IBTA 14.4.4: a port whose attributes have changed is configured again.
void Manager::finish_sweep(Link& link) {
  ++counters_.swept;
  const util::View<PortInfo> info(link.node.port_info);
  link.deadline = util::kNever;
  if (PortState(info.get(PortInfo::port_state)) == PortState::ACTIVE &&
      info.get(PortInfo::lid) == link.node.lid.value() &&
      info.get(PortInfo::master_sm_lid) == kOwnLid.value()) {
    link.step = Step::kDone;
    return;
  }
  ++counters_.mended;
  // The switch's end of the link is reset too.
  set_state(link, PortState::DOWN);
  begin(link);
}

void Manager::handle_response(std::uint8_t port, const Mad& mad) {
  const util::View<Smp> smp(mad);
  if (port >= links_.size() || !links_[port].there || links_[port].step == Step::kDone ||
      links_[port].step == Step::kGivenUp ||
      smp.get(Smp::transaction_id) != links_[port].transaction) {
    ++counters_.unexpected;
    return;
  }
  auto& link = links_[port];
  const bool good = MadStatus(smp.get(Smp::status)) == MadStatus::OK;
  if (!good) ++counters_.refused;
  if (good && take(link, mad)) {
    return link.step == Step::kSweep ? finish_sweep(link) : next(link);
  }
  give_up(link);
}

/// Administration names the node again after the next successful discovery.
void Manager::give_up(Link& link) {
  link.step = Step::kGivenUp;
  link.node.up = false;
  link.deadline = util::kNever;
}

// Time -------------------------------------------------------------------------------------------

util::Duration Manager::patience_at(Step step) {
  switch (step) {
    case Step::kDone:
      return kSweepInterval;
    case Step::kGivenUp:
      return kRest;
    default:
      return kPatience;
  }
}

void Manager::handle_deadline(Link& link) {
  if (link.step == Step::kGivenUp) return begin(link);
  if (link.step == Step::kDone) {
    link.step = Step::kSweep;
    link.tries = 0;
    return ask(link);
  }
  if (link.tries < kTriesMax) return ask(link);
  give_up(link);
}

util::Time Manager::run(util::Time now) {
  auto next_time = util::kNever;
  for (auto& link : links_) {
    if (!link.there) continue;
    if (link.deadline <= now) handle_deadline(link);
    // A deadline that ask() or a response has cleared starts now.
    if (link.deadline == util::kNever || link.deadline <= now) {
      link.deadline = now + patience_at(link.step);
    }
    next_time = std::min(next_time, link.deadline);
  }
  return next_time;
}

}  // namespace softhca::subnet
