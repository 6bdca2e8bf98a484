#include "subnet/subnet.h"

#include <cassert>

#include "subnet/numbers.h"
#include "wire/lrh.h"

namespace softhca::subnet {

using spec::infiniband::kFirstMulticastLid;
using spec::infiniband::kManagementLane;

namespace {

constexpr std::uint64_t kGuid = 0x025F'CAFF'FE00'0000;
/// Work (util::WorkBudget) of a request to the switch: the look-ups in its tables, and the response
/// on its way back. For the packet itself its sender has paid.
constexpr std::int64_t kRequestWork = 2'000;

Agent::Identity identity(bool managed) {
  return {.type = spec::infiniband::node_type::SWITCH,
          .ports = Subnet::kPorts,
          .node_guid = kGuid,
          .port_guid = kGuid,
          .description = "softhca switch",
          .vendor_id = 0x025FCA,
          .partition_cap = kPkeysInBlock,
          .capability_mask = managed ? kIsManager : 0,
          .is_manager = managed};
}

}  // namespace

Subnet::Subnet(fabric::Switch& network, bool managed)
    : network_(network),
      agent_(identity(managed), [this](std::uint8_t) { network_.invalidate_flows(); }) {
  if (managed) {
    manager_.emplace(agent_, [this](std::uint8_t, const Mad& mad) {
      send(mad, {kPermissive, kPermissive, kSmiQpn, kSmiQpn});
    });
    administration_.emplace(*manager_);
  }
  network.set_forwarder(this);
  port_ = network.create_port("subnet-manager");
  port_->set_receiver(this);
}

Subnet::~Subnet() {
  port_ = nullptr;
  network_.set_forwarder(nullptr);
}

void Subnet::handle_link(std::uint32_t port, bool up) {
  if (port == 0 || port > kPorts) return;
  const auto number = static_cast<std::uint8_t>(port);
  agent_.set_link(number, up);
  if (!manager_) return;
  if (!up) administration_->forget(number);
  manager_->handle_link(number, up);
}

// Forwarding -------------------------------------------------------------------------------------

/// IBTA 18.2.4: forwards by LID. Data packets need an active port on both ingress and egress.
const fabric::Forwarder::Ways& Subnet::route(const wire::Frame& frame, std::uint32_t ingress) {
  ways_.ports.clear();
  ways_.lasting = false;
  const auto head = frame.link_header();
  if (frame.link() != wire::Link::kInfiniband || head.size() < wire::LrhLayout::kSize ||
      ingress > kPorts) {
    return ways_;
  }
  ingress_ = static_cast<std::uint8_t>(ingress);
  const auto lrh = wire::Lrh::parse(wire::LrhView(head));
  const bool management = lrh.virtual_lane == kManagementLane;
  if (lrh.dlid == kPermissive) {
    if (!management) return ways_;
    if (ingress != 0) {
      ways_.ports.push_back(0);
    } else if (const auto mad = read_mad(frame)) {
      ways_.ports.push_back(Agent::next_port(mad->mad));
    }
    return ways_;
  }
  const auto active = [&](std::uint8_t port) {
    return management || agent_.state(port) == PortState::ACTIVE;
  };
  if (!active(ingress_)) return ways_;
  if (lrh.dlid.value() >= kFirstMulticastLid) {
    for (std::uint32_t port = 0; port <= kPorts; ++port) {
      const auto number = static_cast<std::uint8_t>(port);
      if (port != ingress && agent_.has_member(lrh.dlid, number) && active(number)) {
        ways_.ports.push_back(port);
      }
    }
    return ways_;
  }
  const auto port = agent_.way_to(lrh.dlid);
  if (port == Agent::kNoPort || port == ingress || !active(port)) return ways_;
  ways_.ports.push_back(port);
  // Port 0 needs the ingress port of each packet.
  ways_.lasting = port != 0;
  return ways_;
}

// Port 0 -----------------------------------------------------------------------------------------

void Subnet::send(const Mad& mad, const MadRoute& route) {
  write_mad(mad, route, draft_);
  port_->transmit(draft_);
}

void Subnet::handle_frame(const wire::Frame& frame) {
  auto arrived = read_mad(frame);
  if (!arrived) return;
  auto& [mad, route] = *arrived;
  if (route.destination_qpn == kSmiQpn) return handle_smp(mad, route);
  // A sender may write any source LID. Each port has one, as LMC is 0.
  if (route.source != Manager::lid_of(ingress_)) return;
  if (administration_ && administration_->answer(mad, route.source)) {
    network_.charge(ingress_, kRequestWork + administration_->take_work());
    auto back = reversed(route);
    back.source_qpn = wire::kGsiQpn;
    send(mad, back);
  }
}

void Subnet::handle_smp(Mad& mad, const MadRoute& route) {
  const util::MutableView<Smp> smp(mad);
  const auto mad_class = MadClass(smp.get(Smp::mgmt_class));
  const bool directed = mad_class == MadClass::SUBN_DIRECTED_ROUTE;
  if (!directed && mad_class != MadClass::SUBN_LID_ROUTED) return;
  const auto arrival = ingress_;
  const bool is_response = Method(smp.get(Smp::method)) == Method::GET_RESP;
  // A response is the work of the station that asked.
  if (!is_response) network_.charge(arrival, kRequestWork);
  if (directed) {
    const auto hop = agent_.step(mad, arrival);
    if (hop == Agent::Hop::kNowhere) return;
    if (hop == Agent::Hop::kOnwards) {
      // A route that leaves by port 0 leads to this node's own agent.
      if (Agent::next_port(mad) != 0) return send(mad, route);
      if (agent_.step(mad, 0) != Agent::Hop::kHere) return;
    }
  }
  if (is_response) {
    if (manager_) manager_->handle_response(arrival, mad);
    return;
  }
  if (!agent_.answer(mad, arrival)) return;
  Agent::turn_back(mad);
  send(mad, reversed(route));
}

}  // namespace softhca::subnet
