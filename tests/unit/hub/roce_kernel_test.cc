// A socket of RoCEv2 and the kernel: packets that it refuses, errors that it queues, and room in
// its buffer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <fstream>
#include <string>
#include <vector>

#include "hub/roce_link_host.h"
#include "os/memory_faults.h"
#include "os/own_network.h"
#include "util/log.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Nothing would wake a thread that polls the socket.
bool is_quiet(LinkedHost& host) {
  pollfd one{.fd = host.socket().fd(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 0) == 0;
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

/// A path to a neighbor that does not answer: packets stay in the socket's buffer. To be called in
/// a network of its own.
wire::IbAddress path_to_silence(LinkedHost& host) {
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

}  // namespace
}  // namespace softhca::hub
