// RoCEv2 over UDP sockets: two processes on addresses of the loopback interface.
#include "hub/roce_link.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/udp_address.h"
#include "os/memory_faults.h"
#include "os/own_network.h"
#include "roce_link_host.h"
#include "util/log.h"
#include "wire/ib_header.h"
#include "wire/train.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Nothing would wake a thread that polls the socket.
bool is_quiet(Host& host) {
  pollfd one{.fd = host.socket().fd(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 0) == 0;
}

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
  Host a_{1, clock_}, b_{2, clock_};
  const std::vector<std::byte> payload_ = [] {
    std::vector<std::byte> bytes(1000);
    for (std::size_t i = 0; i != bytes.size(); ++i) bytes[i] = std::byte(i * 7);
    return bytes;
  }();
};

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
  std::vector<Arrived> arrived;
  for (auto more = b_.take(); !more.empty(); more = b_.take()) {
    std::ranges::move(more, std::back_inserter(arrived));
  }
  ASSERT_EQ(arrived.size(), kPackets);
  for (std::size_t i = 0; i != arrived.size(); ++i) {
    EXPECT_EQ(arrived[i].payload, text(i));
  }
}

TEST_F(RoceLinkTest, WhatTheKernelRefusesIsLostWithAReason) {
  // A socket without SO_BROADCAST.
  a_.send(a_.path_to(wire::Gid::from_ipv4(255, 255, 255, 255)), payload_);
  EXPECT_EQ(a_.socket().counters().lost.refused, 1u);
  EXPECT_EQ(a_.socket().counters().sent, 0u);
  // The next packets go.
  a_.send(a_.path_to(b_.gid()), payload_);
  EXPECT_EQ(b_.take().size(), 1u);
}

// ICMP says so later. Packets to others must not be lost because of it.
TEST_F(RoceLinkTest, AHostWithoutTheServiceIsReported) {
  for (const bool receives_first : {true, false}) {
    const auto before = a_.socket().counters().lost.refused;
    a_.send(a_.path_to(loopback_address(88)), payload_);
    if (receives_first) a_.turn();
    a_.send(a_.path_to(b_.gid()), payload_);
    a_.turn();
    EXPECT_EQ(b_.take().size(), 1u);
    EXPECT_EQ(a_.socket().counters().lost.refused, before + 1);
    // Nothing is left that would wake a thread for ever.
    pollfd quiet{.fd = a_.socket().fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&quiet, 1, 0), 0);
  }
}

// The kernel also queues an error of its own (SO_EE_ORIGIN_LOCAL). It must not stay: poll() would
// return for ever, and a full queue takes the receive buffer.
TEST_F(RoceLinkTest, APacketLongerThanTheMtuLeavesNoErrorBehind) {
  for (const std::size_t count : {std::size_t{1}, RoceSocket::kSendMax}) {
    const auto before = a_.socket().counters().lost.too_long;
    a_.socket().send(datagrams(count, b_.gid(), 65'510));
    EXPECT_EQ(a_.socket().counters().lost.too_long, before + count);
    EXPECT_TRUE(is_quiet(a_));
    b_.send(b_.path_to(a_.gid()), payload_);
    EXPECT_EQ(a_.take().size(), 1u);
  }
}

// sendmmsg() stops at the second packet because of the first, whose error it then forgets.
TEST_F(RoceLinkTest, AnErrorBehindASuccessIsTakenByTheNextReceive) {
  auto packets = datagrams(2, b_.gid(), payload_.size());
  packets[0].path.destination = loopback_address(88);
  a_.socket().send(packets);
  EXPECT_EQ(a_.socket().counters().sent, 2u);
  EXPECT_FALSE(is_quiet(a_));
  a_.turn();
  EXPECT_TRUE(is_quiet(a_));
  EXPECT_EQ(a_.socket().counters().lost.refused, 1u);
}

TEST_F(RoceLinkTest, ManyErrorsOfOnePeerLoseNoPacketToAnother) {
  a_.socket().send(datagrams(RoceSocket::kSendMax, loopback_address(88), payload_.size()));
  a_.send(a_.path_to(b_.gid()), payload_);
  EXPECT_EQ(b_.take().size(), 1u);
  EXPECT_EQ(a_.socket().counters().lost.refused, RoceSocket::kSendMax);
}

// At the end of two programs, one is the first to go.
TEST_F(RoceLinkTest, APeerThatHasEndedIsNoNews) {
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel level, std::string_view line) {
    if (level == util::LogLevel::kWarning) lines.emplace_back(line);
  });
  b_.send(b_.path_to(a_.gid()), payload_);
  EXPECT_EQ(a_.take().size(), 1u);
  b_.link().set_addresses({});
  a_.send(a_.path_to(b_.gid()), payload_);
  a_.turn();
  EXPECT_EQ(a_.socket().counters().lost.refused, 1u);
  EXPECT_THAT(lines, IsEmpty());
  a_.send(a_.path_to(loopback_address(88)), payload_);
  a_.turn();
  util::set_log_sink(util::write_to_stderr);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("has nothing on UDP port 4791")));
}

TEST_F(RoceLinkTest, NothingIsSentWhileAFaultIsPending) {
  os::MemoryFaults::note();
  a_.send(a_.path_to(b_.gid()), payload_);
  os::MemoryFaults::clear();
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(a_.socket().counters().lost.fault, 1u);
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

/// A path to a neighbor that does not answer: packets stay in the socket's buffer. To be called in
/// a network of its own.
wire::IbAddress path_to_silence(Host& host) {
  os::OwnNetwork::run(
      "ip link add va type veth peer name vb && ip link set va up &&"
      " ip address add 10.9.0.1/24 dev va");
  std::ofstream("/proc/sys/net/ipv4/neigh/va/unres_qlen_bytes") << (1 << 30);
  std::ofstream("/proc/sys/net/ipv4/neigh/va/retrans_time_ms") << 3'600'000;
  const auto own = wire::Gid::from_ipv4(10, 9, 0, 1);
  host.link().set_addresses(std::span(&own, 1));
  EXPECT_EQ(host.link().sockets().size(), 1u);
  auto address = host.path_to(wire::Gid::from_ipv4(10, 9, 0, 2));
  address.source_gid = own;
  return address;
}

TEST_F(RoceLinkTest, HasRoomForWhatTheKernelsBufferDoesNotHold) {
  const os::OwnNetwork network;
  if (!network.made()) GTEST_SKIP() << "no namespaces for users here";
  const auto address = path_to_silence(a_);
  EXPECT_EQ(a_.link().room(), SIZE_MAX) << "nothing was sent";
  // More than half of the buffer: the link does not ask the kernel before.
  for (int i = 0; i != 5000; ++i) a_.send(address, payload_);
  int queued = 0, buffer = 0;
  socklen_t size = sizeof buffer;
  ASSERT_EQ(::ioctl(a_.socket().fd(), SIOCOUTQ, &queued), 0);
  ASSERT_EQ(::getsockopt(a_.socket().fd(), SOL_SOCKET, SO_SNDBUF, &buffer, &size), 0);
  ASSERT_GT(queued, 0);
  const auto rest = static_cast<std::size_t>(buffer - queued);
  EXPECT_EQ(a_.link().room(), rest);
  EXPECT_EQ(a_.link().room(), rest) << "the buffer still holds packets";
  EXPECT_EQ(a_.socket().drained(), 0u);
  os::OwnNetwork::run("ip link set va down");  // drops them
  EXPECT_EQ(a_.link().room(), static_cast<std::size_t>(buffer));
  EXPECT_EQ(a_.socket().drained(), static_cast<std::size_t>(queued));
  EXPECT_EQ(a_.link().room(), SIZE_MAX) << "the buffer was empty";
}

TEST_F(RoceLinkTest, HasNoRoomUntilTheKernelDrainsItsBuffer) {
  const os::OwnNetwork network;
  if (!network.made()) GTEST_SKIP() << "no namespaces for users here";
  const auto address = path_to_silence(a_);
  const auto& lost = a_.socket().counters().lost;
  for (int i = 0; i != 50'000 && lost.no_room == 0; ++i) a_.send(address, payload_);
  ASSERT_EQ(lost.no_room, 1u);
  EXPECT_EQ(a_.link().room(), 0u);
  os::OwnNetwork::run("ip link set va down");  // drops them
  EXPECT_GE(a_.link().room(), std::size_t{128} << 10);
}

TEST(RocePeers, AnAddressIsBeyondTheHubOnceNoStationHasAnsweredOrAPacketCame) {
  RocePeers peers;
  const auto one = wire::Gid::from_ipv4(10, 0, 0, 1), two = wire::Gid::from_ipv4(10, 0, 0, 2);
  const util::Time now{std::chrono::hours(1)};
  EXPECT_FALSE(peers.is_beyond(one, now));
  peers.ask(one, now);
  EXPECT_FALSE(peers.is_beyond(one, now));
  peers.ask(one, now + RocePeers::kGrace / 2);  // asked again: the time runs from the first
  EXPECT_TRUE(peers.is_beyond(one, now + RocePeers::kGrace));
  EXPECT_FALSE(peers.is_beyond(two, now));
  peers.note_source(two);
  EXPECT_TRUE(peers.is_beyond(two, now));
}

TEST(RocePeers, SomeAddressesHaveNoRoute) {
  const auto own = wire::Gid::from_ipv4(127, 0, 0, 1);
  EXPECT_FALSE(find_route(own, wire::Gid::from_ipv4(127, 0, 0, 2))) << "loopback";
  EXPECT_FALSE(find_route(own, wire::Gid::from_ipv4(239, 0, 0, 2))) << "a group";
  EXPECT_FALSE(find_route(wire::Gid::from_ipv4(10, 255, 255, 1), own))
      << "a source that the host does not have";
  wire::Gid link_local;
  link_local.bytes = {std::byte{0xfe}, std::byte{0x80}};
  EXPECT_FALSE(find_route(own, link_local));
}

}  // namespace
}  // namespace softhca::hub
