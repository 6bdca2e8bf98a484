// RoCEv2 over UDP sockets: two processes on addresses of the loopback interface.
#include "hub/roce_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <numeric>
#include <string>
#include <vector>

#include "hub/roce_link_host.h"
#include "hub/udp_address.h"
#include "os/unique_fd.h"
#include "util/log.h"
#include "wire/train.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(RoceLinkTest, APacketArrivesWithAllThatItsHeadersSay) {
  auto address = a_.path_to(b_.gid());
  address.traffic_class = 0x62;
  address.hop_limit = 7;
  a_.send(address, payload_, 42);
  const auto arrived = b_.take();
  ASSERT_EQ(arrived.size(), 1u);
  const auto& packet = arrived[0].packet;
  EXPECT_EQ(packet.address.source_gid, a_.gid());
  EXPECT_EQ(packet.address.destination_gid, b_.gid());
  EXPECT_EQ(packet.address.source_mac, RoceLink::mac());
  EXPECT_EQ(packet.address.traffic_class, 0x62);
  EXPECT_EQ(packet.address.hop_limit, 7);
  EXPECT_EQ(packet.address.udp_source_port, 4791);
  EXPECT_EQ(packet.bth.psn, wire::Psn(42));
  EXPECT_EQ(arrived[0].payload, payload_);
  EXPECT_EQ(a_.socket().counters().sent, 1u);
  EXPECT_EQ(b_.socket().counters().received, 1u);
}

// The switch knows the router from the start, so that the hub sees none of its frames.
TEST_F(RoceLinkTest, TheHubSeesNothingOfIt) {
  a_.send(a_.path_to(b_.gid()), payload_);
  EXPECT_EQ(b_.take().size(), 1u);
  b_.send(b_.path_to(a_.gid()), payload_);
  EXPECT_EQ(a_.take().size(), 1u);
  EXPECT_EQ(a_.to_hub() + b_.to_hub(), 0u);
}

TEST_F(RoceLinkTest, ATrainArrivesAsItsPackets) {
  constexpr unsigned kPackets = 70;
  std::vector<std::byte> payload(std::size_t{kPackets} * 256);
  for (std::size_t i = 0; i != payload.size(); ++i) payload[i] = std::byte(i / 256);
  wire::Bth bth;
  bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
  bth.psn = wire::Psn(100);
  wire::Frame frame;
  wire::IbHeader(a_.path_to(b_.gid())).emit(bth, {}, 256, frame);
  ASSERT_TRUE(frame.add_segment(payload));
  frame.set_train({kPackets, 256, 0, false});
  a_.transmit(frame);
  const auto arrived = b_.take();
  ASSERT_EQ(arrived.size(), kPackets);
  for (unsigned i = 0; i != kPackets; ++i) {
    EXPECT_EQ(arrived[i].packet.bth.psn, wire::Psn(100 + i));
    EXPECT_EQ(arrived[i].payload, std::vector<std::byte>(256, std::byte(i)));
  }
}

// More packets than slots, in several turns: the slots are used again.
TEST_F(RoceLinkTest, ManyPacketsArriveInOrder) {
  std::uint32_t psn = 0;
  for (int turn = 0; turn != 40; ++turn) {
    for (int i = 0; i != 20; ++i) a_.send(a_.path_to(b_.gid()), payload_, psn++);
    std::vector<std::uint32_t> psns;
    for (const auto& arrived : b_.take()) {
      psns.push_back(arrived.packet.bth.psn.value());
      EXPECT_EQ(arrived.payload, payload_);
    }
    std::vector<std::uint32_t> expected(20);
    std::iota(expected.begin(), expected.end(), psn - 20);
    EXPECT_EQ(psns, expected);
  }
}

// The device does not run: the packets wait in the switch, and refer to their slots.
TEST_F(RoceLinkTest, SlotsInUseStay) {
  constexpr unsigned kPackets = 300;  // more than there are slots
  const auto text = [](std::size_t i) { return std::vector(4, std::byte(i % 251)); };
  for (unsigned i = 0; i != kPackets; ++i) {
    a_.send(a_.path_to(b_.gid()), text(i), i);
    b_.link().receive(fabric::kAllFrames);
  }
  std::vector<ArrivedPacket> arrived;
  for (auto more = b_.take(); !more.empty(); more = b_.take()) {
    std::ranges::move(more, std::back_inserter(arrived));
  }
  ASSERT_EQ(arrived.size(), kPackets);
  for (std::size_t i = 0; i != arrived.size(); ++i) {
    EXPECT_EQ(arrived[i].payload, text(i));
  }
}

TEST_F(RoceLinkTest, OnlyItsOwnAddressesSend) {
  auto address = a_.path_to(b_.gid());
  address.source_gid = loopback_address(77);
  a_.send(address, payload_);
  address.encapsulation = wire::Encapsulation::kRoceV1;
  a_.send(address, payload_);
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(a_.link().unfit(), 2u);
}

/// The warnings while `act` runs.
template <class Act>
std::vector<std::string> warnings_of(Act&& act) {
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel level, std::string_view line) {
    if (level == util::LogLevel::kWarning) lines.emplace_back(line);
  });
  act();
  util::set_log_sink(util::write_to_stderr);
  return lines;
}

TEST_F(RoceLinkTest, RoceV1IsReportedOnce) {
  auto address = a_.path_to(b_.gid());
  address.encapsulation = wire::Encapsulation::kRoceV1;
  const auto lines = warnings_of([&] {
    a_.send(address, payload_);
    a_.send(address, payload_);
  });
  EXPECT_THAT(lines, ElementsAre(HasSubstr("RoCE v1 does not reach other machines")));
}

TEST_F(RoceLinkTest, EachAddressBeyondTheMostIsReportedOnce) {
  std::vector<wire::Gid> addresses;
  for (unsigned i = 0; i != RoceLink::kAddressesMax + 1; ++i)
    addresses.push_back(loopback_address(100 + i));
  const auto lines = warnings_of([&] {
    a_.link().set_addresses(addresses);
    a_.link().set_addresses(addresses);
  });
  EXPECT_EQ(a_.link().sockets().size(), RoceLink::kAddressesMax);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("only 16 addresses get a UDP socket")));
}

TEST_F(RoceLinkTest, DatagramsThatAreNoPacketsAreCounted) {
  const os::UniqueFd stranger(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto to = UdpAddress::of(b_.gid(), 4791);
  for (const std::size_t size : {0, 3, 15, 16, 100, 5000, 60000}) {
    const std::vector<char> bytes(size);
    ASSERT_EQ(::sendto(stranger.get(), bytes.data(), size, 0, &to.any, to.size()),
              static_cast<ssize_t>(size));
  }
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(b_.socket().counters().lost.malformed, 5u);
  EXPECT_EQ(b_.socket().counters().lost.corrupt, 2u);
  a_.send(a_.path_to(b_.gid()), payload_);
  EXPECT_EQ(b_.take().size(), 1u);
}

TEST_F(RoceLinkTest, SocketsFollowTheAddresses) {
  const std::vector both{a_.gid(), loopback_address(3)};
  a_.link().set_addresses(both);
  ASSERT_EQ(a_.link().sockets().size(), 2u);
  b_.send(b_.path_to(loopback_address(3)), payload_);
  EXPECT_EQ(a_.take().size(), 1u);
  a_.link().set_addresses(std::span(both).last(1));
  ASSERT_EQ(a_.link().sockets().size(), 1u);
  EXPECT_EQ(a_.socket().address(), loopback_address(3));
  // The address that it had is free.
  EXPECT_TRUE(open_roce_socket(a_.gid()));
}

TEST_F(RoceLinkTest, FramesOfAClosedSocketStillArrive) {
  a_.send(a_.path_to(b_.gid()), payload_);
  b_.link().receive(fabric::kAllFrames);
  b_.link().set_addresses({});
  const auto arrived = b_.take();
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_EQ(arrived[0].payload, payload_);
}

TEST_F(RoceLinkTest, ASocketThatIsBoundAlreadyIsAdopted) {
  const auto gid = loopback_address(9);
  os::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto own = UdpAddress::of(gid, 4791);
  ASSERT_EQ(::bind(fd.get(), &own.any, own.size()), 0);
  auto adopted = RoceSocket::adopt(std::move(fd), gid);
  ASSERT_TRUE(adopted);
  a_.send(a_.path_to(gid), payload_);
  pollfd readable{.fd = (*adopted)->fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 1);
}

// A hub that shares an address among processes has the socket of QP1.
TEST_F(RoceLinkTest, APacketOfAnotherProcessIsDelivered) {
  const auto address = a_.path_to(b_.gid());
  wire::Bth bth;
  bth.opcode = wire::Opcode::UD_SEND_ONLY;
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, {}, payload_.size(), frame);
  ASSERT_TRUE(frame.add_segment(payload_));
  wire::RoceDatagram datagram;
  ASSERT_TRUE(datagram.make(frame, 4791));
  std::vector<std::byte> bytes;
  for (const auto piece : datagram.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
  EXPECT_FALSE(b_.link().deliver(std::span(bytes).first(3), datagram.path));
  EXPECT_TRUE(b_.link().deliver(bytes, datagram.path));
  std::ranges::fill(bytes, std::byte{0});  // the frame has a copy
  const auto arrived = b_.take();
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_EQ(arrived[0].payload, payload_);
  EXPECT_EQ(arrived[0].packet.address.source_gid, a_.gid());
}

}  // namespace
}  // namespace softhca::hub
