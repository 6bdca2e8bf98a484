// Datagrams of peers to a process's RoCEv2 socket, frames of its device, and addresses that come
// and go: real sockets on loopback.
//
// Besides the sanitizers' checks: a turn takes no more packets than it may; the device gets valid
// packets only, from the router, to itself; every datagram is counted; and at the end a packet of
// an honest peer arrives.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/switch.h"
#include "hub/roce_link.h"
#include "hub/udp_address.h"
#include "oracle.h"
#include "os/unique_fd.h"
#include "script.h"
#include "util/log.h"
#include "wire/ib_header.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;

/// An address of 127.0.0.0/8 that other processes do not use.
wire::Gid address_of(unsigned host) {
  const auto pid = static_cast<unsigned>(::getpid());
  return wire::Gid::from_ipv4(127, static_cast<std::uint8_t>(1 + pid / 256 % 250),
                              static_cast<std::uint8_t>(pid), static_cast<std::uint8_t>(host));
}

constexpr unsigned kOwn = 1, kSecond = 2, kPeer = 3;
const wire::MacAddress kMac = wire::MacAddress::from_u64(0x020000000001);

/// The device: it has a MAC, and takes valid packets only.
struct Device final : fabric::Receiver {
  void handle_frame(const wire::Frame& frame) override {
    const auto packet = wire::IbPacket::parse(frame);
    check(packet.has_value());
    check(packet->address.destination_mac == kMac);
    check(packet->address.source_mac == hub::RoceLink::mac());
    ++packets;
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override { check(false); }
  std::uint64_t packets = 0;
};

class Peer {
 public:
  Peer() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const auto own = hub::UdpAddress::of(address_of(kPeer), 0);
    check(::bind(socket_.get(), &own.any, own.size()) == 0);
  }
  void send(std::span<const std::byte> bytes, int tos, int ttl) const {
    ::setsockopt(socket_.get(), IPPROTO_IP, IP_TOS, &tos, sizeof tos);
    ::setsockopt(socket_.get(), IPPROTO_IP, IP_TTL, &ttl, sizeof ttl);
    const auto to = hub::UdpAddress::of(address_of(kOwn), wire::kRoceUdpPort);
    (void)::sendto(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT, &to.any, to.size());
  }
  std::uint16_t port() const {
    sockaddr_in name{};
    socklen_t size = sizeof name;
    check(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
    return ntohs(name.sin_port);
  }

 private:
  os::UniqueFd socket_;
};

class World {
 public:
  World() {
    port_->set_receiver(&device_);
    set_addresses(1);
    check(link_.sockets().size() == 1);
    transmit(wire::Frame::from_bytes(announcement()));
  }
  ~World() { port_->set_receiver(nullptr); }

  void play(Script script) {
    while (!script.empty()) {
      const fuzz::Turn turn;
      act(script);
    }
    set_addresses(1);
    check(link_.sockets().size() == 1);
    while (receive(256) != 0) {
    }
    const auto before = device_.packets;
    peer_.send(genuine(0), 0, 64);
    check(receive(256) == 1 && device_.packets == before + 1);
  }

 private:
  void act(Script& script) {
    switch (script.byte() % 8) {
      case 0:
        return peer_.send(script.take(script.word() % 5000), script.byte(),
                          1 + script.byte() % 255);
      case 1:
        return send_changed(script);
      case 2:
        (void)receive(script.byte());
        return;
      case 3:
        return transmit(wire::Frame::from_bytes(script.take(script.word() % 5000)));
      case 4:
        return send_as_device(script);
      case 5:
        return set_addresses(script.byte() % 4);
      case 6:
        return deliver(script);
      default:
        now_ += std::chrono::milliseconds(script.word() % 500);
        link_.announce();
        check(link_.room() > 0);
    }
  }
  std::size_t receive(std::size_t most) {
    const auto count = link_.receive(most);
    check(count <= most * std::max<std::size_t>(link_.sockets().size(), 1));
    fabric_.deliver(1 << 20);
    return count;
  }
  void transmit(const wire::Frame& frame) {
    port_->transmit(frame);
    fabric_.deliver(1 << 20);
  }
  /// Bits: the addresses that the host has.
  void set_addresses(unsigned which) {
    std::vector<wire::Gid> all;
    if ((which & 1) != 0) all.push_back(address_of(kOwn));
    if ((which & 2) != 0) all.push_back(address_of(kSecond));
    link_.set_addresses(all);
    fabric_.deliver(1 << 20);
  }
  wire::IbAddress path(unsigned from, unsigned to) const {
    wire::IbAddress address;
    address.source_mac = kMac;
    address.destination_mac = hub::RoceLink::mac();
    address.source_gid = address_of(from);
    address.destination_gid = address_of(to);
    address.hop_limit = 64;
    address.udp_source_port = from == kPeer ? peer_.port() : wire::kRoceUdpPort;
    return address;
  }
  static std::vector<std::byte> announcement() {
    std::vector<std::byte> bytes(wire::Ethernet::kFrameMin);
    wire::Ethernet{hub::RoceLink::mac(), kMac, wire::EtherType{0x88b5}}.emit(
        util::MutableView<wire::EthernetLayout>(bytes));
    return bytes;
  }
  /// A datagram of the peer, from the BTH to the ICRC.
  std::vector<std::byte> genuine(std::size_t size) const {
    const std::vector<std::byte> payload(size);
    wire::Bth bth;
    bth.opcode = wire::Opcode::UD_SEND_ONLY;
    wire::Frame frame;
    wire::IbHeader(path(kPeer, kOwn)).emit(bth, {}, size, frame);
    check(frame.add_segment(payload));
    std::vector<std::byte> bytes(frame.size());
    frame.copy_to(bytes);
    constexpr std::size_t kBefore = 14 + 20 + 8;
    return {bytes.begin() + kBefore, bytes.end()};
  }
  void send_changed(Script& script) {
    auto bytes = genuine(script.word() % 4097);
    const auto bits = script.byte();
    bytes[script.word() % bytes.size()] ^= std::byte{bits};
    const auto cut = script.byte();
    bytes.resize(bytes.size() - std::min<std::size_t>(cut % 16, bytes.size()));
    peer_.send(bytes, script.byte(), 64);
  }
  void send_as_device(Script& script) {
    auto address = path(kOwn + script.byte() % 4, 1 + script.byte() % 8);
    address.traffic_class = script.byte();
    address.hop_limit = script.byte();
    const auto payload = script.take(script.word() % 4097);
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_SEND_ONLY;
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, {}, payload.size(), frame);
    check(frame.add_segment(payload));
    transmit(frame);
  }
  void deliver(Script& script) {
    wire::DatagramPath datagram;
    datagram.source = address_of(script.byte());
    datagram.destination = address_of(kOwn);
    datagram.source_port = script.word();
    const auto bytes = script.take(script.word() % 600);
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());
    (void)link_.deliver(exact, datagram);
    fabric_.deliver(1 << 20);
  }

  util::Time now_{std::chrono::hours(1)};
  Peer peer_;
  Device device_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> port_ = fabric_.create_port("device");
  hub::RoceLink link_{fabric_.create_port("socket"), kMac, [this] { return now_; }};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  util::set_log_sink([](auto, auto) {});
  return fuzz::run_input([&] { World().play(Script(data, size)); });
}
