// A process's way to other machines, with its device on a switch: two of them are two machines.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/loopback_address.h"
#include "hub/open_roce_socket.h"
#include "hub/roce_link.h"
#include "util/time_source.h"
#include "wire/group_mac.h"
#include "wire/ib_header.h"
#include "wire/ib_packet.h"

namespace softhca::hub {

struct ArrivedPacket {
  wire::IbPacket packet;
  std::vector<std::byte> payload;
};

/// A device and its way to other machines on a switch.
class LinkedHost {
 public:
  explicit LinkedHost(unsigned number, util::TimeSource clock)
      : LinkedHost(number, loopback_address(number), std::move(clock)) {}
  LinkedHost(unsigned number, const wire::Gid& gid, util::TimeSource clock)
      : gid_(gid),
        mac_(wire::MacAddress::from_u64(0x020000000000 + number)),
        hub_(fabric_.create_port("hub")),
        device_(fabric_.create_port("device")),
        link_(fabric_.create_port("socket"), mac_, std::move(clock), open_roce_socket) {
    hub_->set_receiver(&hub_receiver_);
    device_->set_receiver(&receiver_);
    receiver_.then = [this](const wire::Frame& frame) {
      const auto packet = wire::IbPacket::parse(frame);
      if (!packet) return;
      ArrivedPacket arrived{*packet, {}};
      packet->for_each_payload_piece(frame, [&](std::span<const std::byte> piece) {
        arrived.payload.insert(arrived.payload.end(), piece.begin(), piece.end());
      });
      arrived_.push_back(std::move(arrived));
    };
    hub_receiver_.then = [this](const wire::Frame&) { ++to_hub_; };
    link_.set_addresses(std::span(&gid_, 1));
    // The device announces itself.
    device_->transmit(fabric::frame_of(0xffff'ffff'ffff, mac_.to_u64(), "here"));
    turn();
    to_hub_ = 0;
  }
  const wire::Gid& gid() const { return gid_; }
  RoceLink& link() { return link_; }
  RoceSocket& socket() { return *link_.sockets().at(0); }
  unsigned to_hub() const { return to_hub_; }

  wire::IbAddress path_to(const wire::Gid& to) const {
    wire::IbAddress address;
    address.source_mac = mac_;
    address.destination_mac = RoceLink::mac();
    address.source_gid = gid_;
    address.destination_gid = to;
    address.hop_limit = 64;
    address.udp_source_port = 0xc000;
    return address;
  }
  void transmit(const wire::Frame& frame) {
    device_->transmit(frame);
    fabric_.deliver(fabric::kAllFrames);
  }
  void send(const wire::IbAddress& address, std::span<const std::byte> payload,
            std::uint32_t psn = 0) {
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_SEND_ONLY;
    bth.psn = wire::Psn(psn);
    transmit(frame_of(address, bth, payload));
  }
  /// A datagram for all QPs of a group.
  void send_to_group(const wire::IbAddress& address, std::span<const std::byte> payload,
                     std::uint32_t psn = 0) {
    transmit(group_frame(address, payload, psn));
  }
  /// The same from another station of the network, such as a program of the own hub.
  void flood(const wire::Frame& frame) {
    hub_->transmit(frame);
    fabric_.deliver(fabric::kAllFrames);
  }
  static wire::Frame group_frame(const wire::IbAddress& address, std::span<const std::byte> payload,
                                 std::uint32_t psn = 0) {
    wire::Bth bth;
    bth.opcode = wire::Opcode::UD_SEND_ONLY;
    bth.dest_qp = wire::kMulticastQpn;
    bth.psn = wire::Psn(psn);
    return frame_of(address, bth, payload);
  }
  wire::IbAddress path_to_group(const wire::Gid& group) const {
    auto address = path_to(group);
    address.destination_mac = wire::mac_of_group(group);
    return address;
  }
  void turn() {
    link_.receive(fabric::kAllFrames);
    fabric_.deliver(fabric::kAllFrames);
  }
  std::vector<ArrivedPacket> take() {
    turn();
    return std::exchange(arrived_, {});
  }

 private:
  static wire::Frame frame_of(const wire::IbAddress& address, const wire::Bth& bth,
                              std::span<const std::byte> payload) {
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, {}, payload.size(), frame);
    EXPECT_TRUE(frame.add_segment(payload));
    return frame;
  }

  const wire::Gid gid_;
  const wire::MacAddress mac_;
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> hub_;
  std::unique_ptr<fabric::Port> device_;
  fabric::Recorder receiver_, hub_receiver_;
  std::vector<ArrivedPacket> arrived_;
  unsigned to_hub_ = 0;
  RoceLink link_;
};

class RoceLinkTest : public testing::Test {
 protected:
  /// Datagrams of `size` bytes from the first host.
  std::vector<wire::RoceDatagram> datagrams(std::size_t count, const wire::Gid& to,
                                            std::size_t size) {
    bytes_.resize(size);
    std::vector<wire::RoceDatagram> all(count);
    for (auto& one : all) {
      one.path = {.source = a_.gid(), .destination = to, .hop_limit = 64};
      one.parts[0] = bytes_;
      one.part_count = 1;
      one.size = size;
    }
    return all;
  }

  std::vector<std::byte> bytes_;
  util::Time now_{std::chrono::hours(1)};
  const util::TimeSource clock_ = [this] { return now_; };
  LinkedHost a_{1, clock_}, b_{2, clock_};
  const std::vector<std::byte> payload_ = [] {
    std::vector<std::byte> bytes(1000);
    for (std::size_t i = 0; i != bytes.size(); ++i) bytes[i] = std::byte(i * 7);
    return bytes;
  }();
};

}  // namespace softhca::hub
