// A process of a hub that keeps the rules: a station, and a hub::Uplink in front of it that asks
// for links and uses them, as for a real device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "fabric/switch.h"
#include "hub/uplink.h"
#include "oracle.h"
#include "os/shared_ring.h"
#include "wire/ethernet.h"
#include "wire/ib_header.h"
#include "wire/ib_packet.h"
#include "wire/train.h"

namespace softhca::fuzz {

/// Reads all of each packet, as a device does.
struct HubStation final : fabric::Receiver {
  void handle_frame(const wire::Frame& frame) override {
    wire::for_each_packet(frame, [this](const wire::Frame& packet) {
      check(packet.size() != 0 && packet.size() <= bytes.size());
      packet.copy_to(std::span(bytes).first(packet.size()));
      if (packet.size() > 14 && bytes[14] == std::byte{0x5a}) ++marked;
    });
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override { check(false); }
  bool takes_trains() const override { return true; }

  std::array<std::byte, os::SharedRing::kRecordMax + 8> bytes{};  // with CRCs
  unsigned marked = 0;
};

class HubMember {
 public:
  explicit HubMember(hub::Joined joined)
      : mac_(wire::MacAddress::from(std::as_bytes(std::span(joined.mac)))),
        port_(fabric_.create_port("station")),
        link_(fabric_.create_port("hub"), std::move(joined), util::monotonic_now) {
    port_->set_receiver(&station);
  }
  wire::MacAddress mac() const { return mac_; }
  hub::Uplink& link() { return link_; }

  void send(std::uint64_t to, std::byte mark) {
    wire::Frame frame;
    const auto head = frame.resize_head(60);
    std::ranges::fill(head, std::byte{0});
    wire::Ethernet{wire::MacAddress::from_u64(to), mac_, wire::EtherType{0x88b5}}.emit(
        util::MutableView<wire::EthernetLayout>(head.first<14>()));
    head[14] = mark;
    port_->transmit(frame);
  }
  /// A train of RDMA WRITE MIDDLE packets.
  void send_train(std::uint64_t to, unsigned packets) {
    constexpr std::uint16_t kMtu = 1024;
    wire::IbAddress address;
    address.source_mac = mac_;
    address.destination_mac = wire::MacAddress::from_u64(to);
    address.source_gid = address.destination_gid = wire::Gid::from_ipv4(0x0a000001);
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, {}, kMtu, frame);
    packets = 2 + packets % (kTrainMax - 1);
    check(frame.add_segment(std::span(payload_).first(std::size_t{packets} * kMtu)));
    frame.set_train({static_cast<std::uint16_t>(packets), kMtu, 0});
    port_->transmit(frame);
  }
  void turn(std::size_t frames) {
    // The rest of the last train arrives as well, from the hub and from each link.
    (void)link_.receive(frames);
    fabric_.deliver(100'000);
    link_.settle();
  }
  /// A turn whose frames are delivered in the next one.
  void turn_without_delivery(std::size_t frames) {
    (void)link_.receive(frames);
    link_.settle();
  }

  HubStation station;

 private:
  static constexpr unsigned kTrainMax = 80;

  const wire::MacAddress mac_;
  std::array<std::byte, std::size_t{kTrainMax} * 1024> payload_{};
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> port_;
  hub::Uplink link_;
};

}  // namespace softhca::fuzz
