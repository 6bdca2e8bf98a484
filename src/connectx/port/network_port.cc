#include "connectx/port/network_port.h"

#include <utility>

#include "wire/train.h"

namespace softhca::connectx {

NetworkPort::NetworkPort(fabric::Port& wire)
    : Port(wire.shortcuts()), wire_(wire), state_(wire, counters_) {}

// The vport --------------------------------------------------------------------------------------

void NetworkPort::set_vport_addresses(std::span<const wire::MacAddress> addresses) {
  forget_sent();
  local_.set_vport(addresses);
}

void NetworkPort::set_roce_addresses(std::span<const wire::MacAddress> addresses) {
  forget_sent();
  local_.set_roce(addresses);
}

void NetworkPort::set_sniffer(Sniffer sniffer) {
  sniffer_ = std::move(sniffer);
  forget_sent();
}

/// Drops cached cells, so that the next frame takes the slow path.
void NetworkPort::forget_sent() {
  last_sent_.forget();
  last_ethernet_sent_.forget();
}

// Frames -----------------------------------------------------------------------------------------

std::uint64_t NetworkPort::transmit(const wire::Frame& frame) {
  // Fast path: nearly every frame is of the flow of the last one, to the same other station.
  if (last_sent_.can_find_fast(frame) && passes(frame)) {
    last_sent_.cell().add(frame.size_of_all(), frame.packets());
    return last_number_ = wire_.transmit(frame);
  }
  return transmit_other_flow(frame);
}

/// Sends a frame of another flow than the last one. Many flows of QPs have the same Ethernet
/// header.
[[gnu::noinline]] std::uint64_t NetworkPort::transmit_other_flow(const wire::Frame& frame) {
  auto* cell = last_sent_.find(frame);
  if (cell == nullptr || !passes(frame)) {
    return send(frame, Service::kRdma, kNoDomain, priority_of(frame));
  }
  cell->add(frame.size_of_all(), frame.packets());
  return last_number_ = wire_.transmit(frame);
}

std::uint64_t NetworkPort::transmit_ethernet(const wire::Frame& frame, TransportDomain domain,
                                             unsigned priority) {
  // Fast path: same Ethernet header as the last frame.
  auto* cell = last_ethernet_sent_.find(frame);
  if (cell != nullptr && priority == last_priority_ && passes(frame)) {
    cell->add(frame.size_of_all(), frame.packets());
    return last_number_ = wire_.transmit(frame);
  }
  return send(frame, Service::kEthernet, domain, priority);
}

std::uint64_t NetworkPort::send(const wire::Frame& frame, Service service, TransportDomain domain,
                                unsigned priority) {
  const bool fits = passes(frame);
  if (!fits || sniffer_) {
    if (frame.packets() != 1 && state_.vport_is_up())
      return send_packets(frame, service, domain, priority);
    if (!fits) {
      refuse_transmit(frame);
      return last_number_;
    }
    sniffer_(frame);
  }
  const auto destination = destination_of(frame);
  const auto cast = cast_of(destination);
  const bool local = cast == Cast::kUnicast && local_.contains(destination);
  const auto way = local ? Way::kLoopback : Way::kWire;
  counters_.tx(service, way).add(cast, priority, frame);
  if (!local && cast == Cast::kUnicast && !sniffer_) {
    auto& last = service == Service::kRdma ? last_sent_ : last_ethernet_sent_;
    last.remember(frame, counters_.tx(service, way).cell(cast, priority));
    if (service == Service::kEthernet) last_priority_ = priority;
  }
  if (!local) last_number_ = wire_.transmit(frame);
  // Multicast also loops back to the consumers in this function.
  if (local || cast != Cast::kUnicast) last_number_ = wire_.loop_back(frame, domain.value());
  return last_number_;
}

/// Sends the packets of a train one by one. The first has more headers, so it may exceed the MTU
/// while the others do not.
std::uint64_t NetworkPort::send_packets(const wire::Frame& train, Service service,
                                        TransportDomain domain, unsigned priority) {
  wire::for_each_packet(
      train, [&](const wire::Frame& packet) { (void)send(packet, service, domain, priority); });
  return last_number_;
}

void NetworkPort::refuse_transmit(const wire::Frame& frame) {
  if (!state_.vport_is_up()) {
    counters_.transmitted_discards += frame.packets();
  } else {
    count_transmit_error(frame);
  }
}

bool NetworkPort::accept(const wire::Frame& frame) {
  if (!passes(frame)) {
    refuse_received(frame);
    return false;
  }
  const auto octets = frame.size() + kFcs;
  last_size_ = frame.size();
  last_size_cell_ = octets < 64 ? &counters_.received_undersize
                                : &counters_.received_sizes[TrafficCounters::size_class(octets)];
  ++*last_size_cell_;
  if (const auto& train = frame.train(); train.packets != 1) {
    counters_.received_sizes[TrafficCounters::size_class(octets - train.first_has_more)] +=
        train.packets - 1u;
  }
  return true;
}

void NetworkPort::refuse_received(const wire::Frame& frame) {
  // A port that is down receives nothing.
  if (state_.oper_status() != PortState::OperStatus::UP) return;
  if (frame.size() < PortState::kHeader) return counters_.received_errors.add(frame.size());
  if (frame.size() + kFcs > state_.mtu()) return counters_.received_oversize.add(frame.size());
  count_received(frame, Service::kEthernet);
  if (state_.vport_enabled()) {
    counters_.received_errors.add(frame.size());
  } else {
    count_discard(priority_of(frame));
  }
}

}  // namespace softhca::connectx
