#include "hub/roce_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "hub/roce_batch.h"
#include "hub/uplink.h"
#include "util/log.h"
#include "wire/address_text.h"
#include "wire/ethernet.h"
#include "wire/group_mac.h"
#include "wire/ib_header.h"
#include "wire/train.h"

namespace softhca::hub {

RoceLink::RoceLink(std::unique_ptr<fabric::Port> port, const wire::MacAddress& its_mac,
                   util::TimeSource clock, OpenSocket open)
    : port_(std::move(port)),
      clock_(std::move(clock)),
      open_(std::move(open)),
      device_mac_(its_mac),
      reader_(mac(), its_mac) {
  port_->set_receiver(this);
  announce();
}

RoceLink::~RoceLink() {
  port_->set_receiver(nullptr);
  port_.reset();  // its queued frames refer to the sockets' memory
}

bool RoceLink::has_socket(const wire::Gid& address) const {
  return std::ranges::any_of(sockets_,
                             [&](const auto& socket) { return socket->address() == address; });
}

void RoceLink::set_groups(std::span<const wire::Gid> groups, unsigned interface) {
  if (std::exchange(interface_, interface) != interface) {
    for (const auto& socket : sockets_) socket->set_group_interface(interface);
  }
  multicast_.set_groups(groups, interface, *port_);
}

void RoceLink::set_addresses(std::span<const wire::Gid> addresses) {
  const auto wanted = addresses.first(std::min(addresses.size(), kAddressesMax));
  multicast_.set_own(addresses);
  const auto is_wanted = [&](const wire::Gid& address) {
    return std::ranges::find(wanted, address) != wanted.end();
  };
  if (std::ranges::any_of(sockets_, [&](const auto& s) { return !is_wanted(s->address()); })) {
    (void)port_->settle();
    std::erase_if(sockets_, [&](const auto& socket) { return !is_wanted(socket->address()); });
  }
  std::erase_if(refused_, [&](const auto& address) {
    return std::ranges::find(addresses, address) == addresses.end();
  });
  for (const auto& address : wanted) {
    if (has_socket(address)) continue;
    auto socket = open_(address);
    if (socket && *socket == nullptr) continue;
    if (socket) {
      util::log(util::LogLevel::kInfo, "RoCEv2 of {} on UDP port {}", text_of(address),
                wire::kRoceUdpPort);
      (*socket)->set_group_interface(interface_);
      sockets_.push_back(*std::move(socket));
      std::erase(refused_, address);
    } else {
      refuse(address, socket.error().message);
    }
  }
  for (const auto& address : addresses.subspan(wanted.size())) {
    refuse(address, fmt::format("no RoCEv2 of {}: only {} addresses get a UDP socket",
                                text_of(address), kAddressesMax));
  }
}

/// Logs why an address has no socket, once.
void RoceLink::refuse(const wire::Gid& address, std::string_view reason) {
  if (std::ranges::find(refused_, address) != refused_.end()) return;
  refused_.push_back(address);
  util::log(util::LogLevel::kWarning, "{}", reason);
}

void RoceLink::leave_to_parent() {
  for (const auto& socket : sockets_) socket->leave_to_parent();
  multicast_.leave_to_parent();
}

/// A frame from the router to itself: the switch learns its port, and delivers nothing.
void RoceLink::announce() {
  constexpr auto kLocalExperiment = wire::EtherType(0x88b5);  // IEEE 802 9.2.4
  wire::Frame frame;
  const auto head = frame.resize_head(wire::Ethernet::kFrameMin);
  std::ranges::fill(head, std::byte{0});
  wire::Ethernet{.destination = mac(), .source = mac(), .ether_type = kLocalExperiment}.emit(
      util::MutableView<wire::EthernetLayout>(head));
  (void)port_->transmit(frame);
}

std::optional<UdpRoute> RoceLink::find(const wire::Gid& address) const {
  if (has_socket(address) || !peers_.is_beyond(address, clock_())) return std::nullopt;
  for (const auto& socket : sockets_) {
    if (auto route = find_route(socket->address(), address)) return route;
  }
  return std::nullopt;
}

// Frames -----------------------------------------------------------------------------------------

void RoceLink::handle_frame(const wire::Frame& frame) {
  const auto header = frame.link_header();
  if (header.size() < wire::EthernetLayout::kSize) return;
  const auto to = wire::MacAddress::from(header.first<wire::MacAddress::kSize>());
  if (to.is_multicast()) return send_to_group(frame);
  // The switch floods frames to stations that it does not know.
  if (to != mac()) return;
  if (frame.packets() != 1) return send_train(frame);
  if (!make(datagrams_[0], frame, 0)) return note_unfit(frame);
  send(1);
}

/// False: it is no packet to one host.
bool RoceLink::make(wire::RoceDatagram& datagram, const wire::Frame& frame,
                    std::uint16_t position) const {
  return datagram.make(frame, wire::kRoceUdpPort, position) &&
         !datagram.path.destination.is_multicast();
}

/// The device's own packets only: those of other stations come by the hub, and the programs among
/// these send them to other machines themselves.
void RoceLink::send_to_group(const wire::Frame& frame) {
  constexpr auto kSize = wire::MacAddress::kSize;
  const auto header = frame.link_header();
  if (wire::MacAddress::from(header.subspan<kSize, kSize>()) != device_mac_) return;
  if (frame.packets() != 1 || !datagrams_[0].make(frame, wire::kRoceUdpPort)) return;
  const auto& group = datagrams_[0].path.destination;
  const auto to = wire::MacAddress::from(header.first<kSize>());
  if (group.is_multicast() && wire::mac_of_group(group) == to) send(1);
}

/// Counts a packet that is none of RoCEv2.
void RoceLink::note_unfit(const wire::Frame& frame) {
  ++unfit_;
  const auto type = wire::Ethernet::parse(wire::EthernetView(frame.link_header())).ether_type;
  if (type != wire::EtherType::kRoceV1 || std::exchange(has_warned_of_v1_, true)) return;
  util::log(util::LogLevel::kWarning,
            "RoCE v1 does not reach other machines: select a GID of type RoCE v2");
}

void RoceLink::send_train(const wire::Frame& train) {
  for (unsigned i = 0; i != train.packets();) {
    std::size_t count = 0;
    RoceBatch batch;
    for (; count != packets_.size() && i != train.packets(); ++i) {
      auto& packet = packets_[count];
      wire::cut(train, i, packet);
      if (make(datagrams_[count], packet, batch.next(packet.size()))) {
        ++count;
      } else {
        note_unfit(packet);
        batch.end();
      }
    }
    if (count != 0) send(count);
  }
}

/// Sends the first datagrams, which are of one source.
void RoceLink::send(std::size_t count) {
  has_sent_ = true;
  const auto& source = datagrams_[0].path.source;
  for (const auto& socket : sockets_) {
    if (socket->address() == source) return socket->send(std::span(datagrams_).first(count));
  }
  unfit_ += count;
}

std::size_t RoceLink::receive(std::size_t frames) {
  std::size_t count = 0;
  for (const auto& socket : sockets_) {
    count += socket->receive(*port_, reader_, frames,
                             [this](const wire::Gid& source) { peers_.note_source(source); });
    if (socket->has_complaint()) report(socket->take_complaint());
  }
  count += multicast_.receive(*port_, frames,
                              [this](const wire::Gid& source) { peers_.note_source(source); });
  return count;
}

/// A peer that has sent packets before has ended. Its connections show that.
void RoceLink::report(const RoceSocket::Complaint& complaint) {
  std::uint64_t held_back = 0;
  if (peers_.is_source(complaint.to) || !lines_.allow(clock_(), &held_back)) return;
  const auto text = text_of(complaint.to);
  if (complaint.error == ECONNREFUSED) {
    util::log(util::LogLevel::kWarning,
              "{} has nothing on UDP port {}: does the other program run with --address if:NAME?",
              text, wire::kRoceUdpPort);
  } else {
    util::log(util::LogLevel::kWarning, "packets to {} do not arrive: {}", text,
              std::system_category().message(complaint.error));
  }
}

bool RoceLink::deliver(std::span<const std::byte> datagram, const wire::DatagramPath& path) {
  auto& frame = port_->draft();
  if (!reader_.read(datagram, path, frame)) return false;
  (void)frame.own_segments();
  peers_.note_source(path.source);
  (void)port_->transmit(frame);
  return true;
}

std::size_t RoceLink::room() {
  if (!has_sent_) return SIZE_MAX;
  has_sent_ = false;
  auto least = SIZE_MAX;
  std::uint64_t drained = 0;
  for (const auto& socket : sockets_) {
    least = std::min(least, socket->room());
    drained += socket->drained();
    has_sent_ |= socket->is_draining();
  }
  return patience_.room(least, drained, Uplink::kRoomMin, clock_);
}

}  // namespace softhca::hub
