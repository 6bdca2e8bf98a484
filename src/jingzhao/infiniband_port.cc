#include "jingzhao/infiniband_port.h"

#include <utility>

#include "jingzhao/identity.h"
#include "jingzhao/numbers.h"
#include "subnet/mad.h"
#include "wire/lrh.h"

namespace softhca::jingzhao {

using subnet::MadClass;
using subnet::PortInfo;
using subnet::Smp;

InfinibandPort::InfinibandPort(fabric::Port& wire, std::string name, std::uint64_t node_guid,
                               std::function<void()> handle_change)
    : LinkPort(wire),
      agent_({.type = spec::infiniband::node_type::CHANNEL_ADAPTER,
              .ports = kPort,
              .node_guid = node_guid,
              .port_guid = node_guid + kPort,
              .description = std::move(name),
              .device_id = kDeviceId,
              .vendor_id = kVendorId,
              .partition_cap = limits::kPkeys},
             [change = std::move(handle_change)](std::uint8_t) { change(); }) {}

void InfinibandPort::set_receiver(fabric::Receiver* receiver) {
  above_ = receiver;
  // Set the port state first: the subnet manager sends requests as soon as the port has a receiver.
  follow_link();
  LinkPort::set_receiver(receiver == nullptr ? nullptr : &entrance_);
}

rdma::LinkAttributes InfinibandPort::attributes() const {
  rdma::LinkAttributes out;
  out.lid = agent_.lid(kPort);
  out.lmc = static_cast<std::uint8_t>(agent_.port_info(kPort).get(PortInfo::lmc));
  for (std::size_t level = 0; level != out.virtual_lanes.size(); ++level) {
    out.virtual_lanes[level] = agent_.virtual_lane(kPort, static_cast<std::uint8_t>(level));
  }
  return out;
}

std::uint64_t InfinibandPort::transmit(const wire::Frame& frame) {
  if (!link_up()) return last_;
  const auto lrh = wire::Lrh::parse(wire::LrhView(frame.link_header()));
  const auto open = (1u << agent_.port_info(kPort).get(PortInfo::lmc)) - 1;
  const auto difference = lrh.dlid.value() ^ agent_.lid(kPort).value();
  return last_ = send(frame, (difference & ~open) == 0);
}

void InfinibandPort::handle_frame(const wire::Frame& frame) {
  follow_link();
  if (subnet::is_for_smi(frame)) return handle_smp(frame);
  // IBTA 7.2.7: a port in ARMED already receives data.
  if (agent_.state(kPort) >= subnet::PortState::ARMED) above_->handle_frame(frame);
}

void InfinibandPort::Entrance::handle_cost(std::int64_t units) { port_.above_->handle_cost(units); }

void InfinibandPort::handle_smp(const wire::Frame& frame) {
  count_received(frame);
  auto arrived = subnet::read_mad(frame);
  if (!arrived) return;
  auto& [mad, route] = *arrived;
  const auto mad_class = MadClass(util::View<Smp>(mad).get(Smp::mgmt_class));
  if (mad_class == MadClass::SUBN_DIRECTED_ROUTE) {
    if (agent_.step(mad, kPort) != subnet::Agent::Hop::kHere) return;
  } else if (mad_class != MadClass::SUBN_LID_ROUTED || route.destination != agent_.lid(kPort)) {
    return;
  }
  if (!agent_.answer(mad, kPort)) return;
  subnet::Agent::turn_back(mad);
  // The port's own draft may hold an unfinished data frame.
  wire::Frame response;
  subnet::write_mad(mad, subnet::reversed(route), response);
  last_ = send(response, false);
}

}  // namespace softhca::jingzhao
