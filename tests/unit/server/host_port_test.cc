// A port of a switch to a network of the host (server/host_port.h), at real interfaces in a network
// of their own.
#include "server/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/eventfd.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "os/own_network.h"
#include "os/packet_socket.h"
#include "os/raw_socket.h"
#include "os/tap_device.h"
#include "server/carrier_port.h"
#include "tcp_frame.h"
#include "util/log.h"
#include "wire/deferred_checksum.h"
#include "wire/frame_bytes.h"
#include "wire/ib_header.h"
#include "wire/ib_packet.h"
#include "wire/train.h"

namespace softhca::server {
namespace {

using Bytes = std::vector<std::byte>;
using os::FrameFile;
using os::test_frame;
using testing::HasSubstr;
using Status = FrameFile::Received::Status;

/// The device's end of the switch.
class WireStation final : public fabric::Receiver {
 public:
  explicit WireStation(fabric::Switch& network) : port(network.create_port("device")) {
    port->set_receiver(this);
  }
  ~WireStation() override { port->set_receiver(nullptr); }
  void handle_frame(const wire::Frame& frame) override { frames.push_back(wire::bytes_of(frame)); }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}

  std::unique_ptr<fabric::Port> port;
  std::vector<Bytes> frames;
};

class HostPortTest : public os::OwnNetworkTest {
 protected:
  HostPortTest() {
    util::set_log_sink([this](auto, auto text) { log_ += std::string(text) + "\n"; });
  }
  ~HostPortTest() override { util::set_log_sink(nullptr); }

  void connect(std::string name, std::unique_ptr<FrameFile> file) {
    host_port_ = *HostPort::create(*loop_, network_, std::move(name), std::move(file));
  }
  void turn() {
    loop_->run_once(util::Time::min());
    network_.deliver(1000);
  }
  /// Turns until `look()`, for at most some seconds.
  bool turn_until(const std::function<bool()>& look) {
    const auto end = util::monotonic_now() + std::chrono::seconds(20);
    while (!look()) {
      if (util::monotonic_now() > end) return false;
      loop_->run_once(util::monotonic_now() + std::chrono::milliseconds(50));
      network_.deliver(1000);
    }
    return true;
  }
  bool gets_carrier(bool carrier) {
    return turn_until([&] { return host_port_->carrier() == carrier; });
  }
  void send(const wire::Frame& frame) {
    station_.port->transmit(frame);
    network_.deliver(1000);
  }
  void send(const Bytes& bytes) { send(wire::Frame::from_bytes(bytes)); }
  const HostPort::Counters& counters() const { return host_port_->counters(); }

  std::string log_;
  std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::create();
  fabric::Switch network_;
  WireStation station_{network_};
  std::unique_ptr<HostPort> host_port_;
};

/// With a TAP device t0.
class HostPortTapTest : public HostPortTest {
 protected:
  void SetUp() override {
    HostPortTest::SetUp();
    if (IsSkipped()) return;
    if (!may_tap()) GTEST_SKIP() << "no TAP devices for this user";
    connect("tap:t0", *os::TapDevice::open("t0"));
    run("ip link set t0 up");
    ASSERT_TRUE(gets_carrier(true));
  }
};

TEST_F(HostPortTapTest, FramesCrossByteForByteBothWays) {
  os::RawSocket host("t0");
  for (const std::size_t size : {42u, 192u, 193u, 1514u}) {
    const auto frame = test_frame(size);
    send(frame);
    EXPECT_EQ(host.receive(), frame);
    host.send(frame);
    EXPECT_TRUE(turn_until([&] { return !station_.frames.empty(); }));
    EXPECT_THAT(station_.frames, testing::ElementsAre(frame));
    station_.frames.clear();
  }
  EXPECT_EQ(counters().sent, 4u);
  EXPECT_EQ(counters().received, 4u);
}

TEST_F(HostPortTapTest, AFrameInPiecesIsGathered) {
  os::RawSocket host("t0");
  const auto all = test_frame(1000);
  wire::Frame frame;
  std::ranges::copy(std::span(all).first(20), frame.resize_head(20).begin());
  const Bytes middle(all.begin() + 20, all.begin() + 501), end(all.begin() + 501, all.end() - 3);
  ASSERT_TRUE(frame.add_segment(middle) && frame.add_segment(end));
  std::ranges::copy(std::span(all).last(3), frame.resize_tail(3).begin());
  send(frame);
  EXPECT_EQ(host.receive(), all);
}

TEST_F(HostPortTapTest, ADeferredChecksumIsMade) {
  os::RawSocket host("t0");
  wire::Deferred deferred(300);
  host_port_->handle_frame(deferred.frame);
  EXPECT_EQ(host.receive(), deferred.expected);
}

/// A packet of RoCE v2 with a deferred ICRC; with several packets a train.
wire::Frame roce_frame(std::span<const std::byte> payload, unsigned packets) {
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(0x020000000001);
  address.destination_mac = wire::MacAddress::from_u64(0x020000000002);
  address.source_gid = wire::Gid::from_ipv4(0x0a000001);
  address.destination_gid = wire::Gid::from_ipv4(0x0a000002);
  address.udp_source_port = 0xc000;
  wire::Bth bth;
  bth.opcode = packets == 1 ? wire::Opcode::RC_SEND_ONLY : wire::Opcode::RC_SEND_FIRST;
  bth.dest_qp = wire::Qpn(7);
  wire::Frame frame;
  const auto each = payload.size() / packets;
  wire::IbHeader(address).emit(bth, {}, each, frame);
  EXPECT_TRUE(frame.add_segment(payload));
  if (packets != 1) {
    frame.set_train({.packets = static_cast<std::uint16_t>(packets),
                     .payload = static_cast<std::uint16_t>(each)});
  }
  return frame;
}

TEST_F(HostPortTapTest, ThePacketsOfATrainHaveTheirIcrc) {
  os::RawSocket host("t0");
  const Bytes payload(4096, std::byte{0x5a});
  for (const unsigned packets : {1u, 4u}) {
    const auto frame = roce_frame(std::span(payload).first(packets * 1024), packets);
    std::vector<Bytes> expected;
    wire::for_each_packet(frame, [&](const auto& one) { expected.push_back(wire::bytes_of(one)); });
    send(frame);
    for (const auto& packet : expected) {
      const auto received = host.receive();
      EXPECT_EQ(received, packet);
      EXPECT_TRUE(wire::IbPacket::parse(wire::Frame::from_bytes(received)));
    }
  }
  EXPECT_EQ(counters().sent, 5u);
}

TEST_F(HostPortTapTest, AFrameAboveTheMtuIsDroppedAndCounted) {
  os::RawSocket host("t0");
  send(test_frame(1514 + 1));
  EXPECT_EQ(counters().above_mtu, 1u);
  const auto tagged = test_frame(1514 + 4, 0x2005);  // a tag is no part of the packet
  send(tagged);
  auto untagged = tagged;  // as the kernel shows it
  untagged.erase(untagged.begin() + 12, untagged.begin() + 16);
  EXPECT_EQ(host.receive(), untagged);
  send(test_frame(1514 + 5, 0x2005));
  EXPECT_EQ(counters().above_mtu, 2u);
  run("ip link set t0 mtu 9000");
  EXPECT_TRUE(turn_until([&] {
    send(test_frame(9014));
    return counters().sent == 2;
  }));
  EXPECT_EQ(host.receive(), test_frame(9014));
}

TEST_F(HostPortTapTest, WithoutCarrierFramesAreDroppedAndTheLogSaysWhatToDo) {
  run("ip link set t0 down");
  ASSERT_TRUE(gets_carrier(false));
  EXPECT_THAT(log_, HasSubstr("--port tap:t0: the link is down: ip link set t0 up"));
  send(test_frame(60));
  EXPECT_EQ(counters().no_carrier, 1u);
  run("ip link set t0 up");
  ASSERT_TRUE(gets_carrier(true));
  os::RawSocket host("t0");
  send(test_frame(60));
  EXPECT_EQ(host.receive(), test_frame(60));
}

TEST_F(HostPortTapTest, TheCarrierIsTheLinkOfAPortBeforeIt) {
  const auto below = network_.create_port("nic");
  CarrierPort port(*below, *host_port_);
  EXPECT_TRUE(port.link_up());
  run("ip link set t0 down");
  ASSERT_TRUE(gets_carrier(false));
  EXPECT_FALSE(port.link_up());
}

TEST_F(HostPortTapTest, AnInterfaceThatHasGoneIsReportedOnce) {
  run("ip link delete t0");
  ASSERT_TRUE(turn_until([&] { return log_.find("has gone") != std::string::npos; }));
  log_.clear();
  for (int i = 0; i != 10; ++i) turn();
  EXPECT_EQ(log_, "");
  EXPECT_EQ(loop_->run_once(util::Time::min()), 0u) << "the loop spins";
  send(test_frame(60));
  EXPECT_EQ(counters().no_carrier, 1u);
}

TEST_F(HostPortTapTest, SendingIsWorkForTheLoop) {
  (void)host_port_->take_work();
  send(test_frame(60));
  EXPECT_GE(host_port_->take_work(), 1000);
  EXPECT_EQ(host_port_->take_work(), 0);
}

TEST_F(HostPortTest, PacketsThatTheKernelHasMergedArriveOneByOne) {
  add_pair();
  connect("packet:va", *os::PacketSocket::open("va"));
  ASSERT_TRUE(gets_carrier(true));
  os::RawSocket peer("vb", true);
  const auto merged = tcp_frame(2500, kTcpPush, Checksums::kPseudoHeader);
  peer.send_merged(merged, kTcpPayloadAt, 1000, kTcpAt);
  EXPECT_TRUE(turn_until([&] { return station_.frames.size() == 3; }));
  EXPECT_EQ(station_.frames.at(0).size(), kTcpPayloadAt + 1000);
  peer.send_without_checksum(tcp_frame(700, kTcpPush, Checksums::kPseudoHeader), kTcpAt, 16);
  EXPECT_TRUE(turn_until([&] { return station_.frames.size() == 4; }));
  EXPECT_EQ(station_.frames.at(3), tcp_frame(700, kTcpPush, Checksums::kMade));
  remove_pair();
}

/// A network that floods, or takes nothing. Its interface is lo, which is up.
class FakeFile final : public FrameFile {
 public:
  int fd() const override { return event_.get(); }
  unsigned interface() const override { return ::if_nametoindex("lo"); }
  Sent send(std::span<const iovec>) override { return sent; }
  Received receive(std::span<std::byte> room) override {
    if (next.status == Status::kFrame) next.frame = room.first(size);
    return next;
  }
  Sent sent = Sent::kSent;
  Received next;
  std::size_t size = 60;

 private:
  os::UniqueFd event_{::eventfd(1, EFD_NONBLOCK)};
};

class HostPortFakeTest : public HostPortTest {
 protected:
  void SetUp() override {
    HostPortTest::SetUp();
    if (IsSkipped()) return;
    auto file = std::make_unique<FakeFile>();
    file_ = file.get();
    connect("tap:fake", std::move(file));
  }
  FakeFile* file_ = nullptr;
};

TEST_F(HostPortFakeTest, AFloodIsBoundedInEachTurn) {
  file_->next.status = Status::kFrame;
  loop_->run_once(util::Time::min());
  const auto first = counters().received;
  EXPECT_GT(first, 0u);
  EXPECT_LE(first, HostPort::kPacketsPerTurn);
  loop_->run_once(util::Time::min());
  EXPECT_GT(counters().received, first);
  EXPECT_LE(counters().received, 2 * HostPort::kPacketsPerTurn);
}

TEST_F(HostPortFakeTest, FramesThatAreNotDeliveredKeepTheirMemory) {
  file_->next.status = Status::kFrame;
  file_->size = 60'000;
  for (int i = 0; i != 100; ++i) loop_->run_once(util::Time::min());
  const auto most = counters().received;
  EXPECT_LE(most * file_->size, HostPort::kMemory);
  EXPECT_GT(most, 10u);
  network_.deliver(1000);
  loop_->run_once(util::Time::min());
  EXPECT_GT(counters().received, most);
}

TEST_F(HostPortFakeTest, FramesThatAreNoneAreBoundedAndCounted) {
  file_->next.status = Status::kTooLong;
  loop_->run_once(util::Time::min());
  EXPECT_GT(counters().received_too_long, 0u);
  EXPECT_LE(counters().received_too_long, HostPort::kPacketsPerTurn);
  file_->next.status = Status::kUnfit;
  loop_->run_once(util::Time::min());
  EXPECT_GT(counters().received_unfit, 0u);
  file_->next = {.status = Status::kFrame, .frame = {}, .rest = {.segment = 1000}};
  const auto before = counters().received_unfit;
  loop_->run_once(util::Time::min());
  EXPECT_GT(counters().received_unfit, before);
  EXPECT_EQ(counters().received, 0u);
}

TEST_F(HostPortFakeTest, WithoutCarrierNothingReachesTheKernel) {
  run("ip link set lo down");
  EXPECT_TRUE(gets_carrier(false));
  send(test_frame(60));
  EXPECT_EQ(counters().no_carrier, 1u);
  EXPECT_EQ(counters().sent, 0u);
  run("ip link set lo up");
  EXPECT_TRUE(gets_carrier(true));
  send(test_frame(60));
  EXPECT_EQ(counters().sent, 1u);
}

TEST_F(HostPortFakeTest, ADroppedFrameIsCountedByItsReason) {
  file_->sent = FrameFile::Sent::kFull;
  send(test_frame(60));
  EXPECT_EQ(counters().queue_full, 1u);
  file_->sent = FrameFile::Sent::kTooLong;
  send(test_frame(60));
  EXPECT_EQ(counters().above_mtu, 1u);
  file_->sent = FrameFile::Sent::kDown;
  send(test_frame(60));
  EXPECT_EQ(counters().no_carrier, 1u);
  file_->sent = FrameFile::Sent::kUnreadable;
  send(test_frame(60));
  EXPECT_EQ(counters().unreadable, 1u);
  file_->sent = FrameFile::Sent::kRefused;
  send(test_frame(60));
  EXPECT_EQ(counters().refused, 1u);
  EXPECT_EQ(counters().sent, 0u);
}

}  // namespace
}  // namespace softhca::server
