// Several packets in one message to or from the kernel (UDP_SEGMENT, UDP_GRO), with real sockets.
#include "hub/roce_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>

#include <deque>
#include <numeric>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/merged_datagram.h"
#include "hub/roce_group.h"
#include "hub/roce_link.h"
#include "hub/roce_socket.h"
#include "hub/udp_address.h"
#include "loopback_address.h"
#include "open_roce_socket.h"
#include "os/own_network.h"
#include "udp_sender.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RoceBatch, PacketsOfOneLengthAreNumbered) {
  RoceBatch batch;
  std::vector<unsigned> positions;
  for (const std::size_t size : {300, 256, 256, 256, 300, 256}) {
    positions.push_back(batch.next(size));
  }
  EXPECT_THAT(positions, ElementsAre(0, 0, 1, 2, 0, 0));
  batch.end();
  EXPECT_EQ(batch.next(256), 0);
}

TEST(RoceBatch, AMessageIsNoLongerThanADatagramAndHasNoMorePartsThanTheKernelCuts) {
  const auto longest = [](std::size_t size) {
    RoceBatch batch;
    unsigned most = 0;
    for (int i = 0; i != 200; ++i) most = std::max<unsigned>(most, batch.next(size) + 1u);
    return most;
  };
  EXPECT_EQ(longest(4112), 15u);
  EXPECT_EQ(longest(1040), 62u);
  EXPECT_EQ(longest(272), 63u);
  EXPECT_EQ(longest(65'507), 1u);
}

std::vector<std::size_t> cut(std::size_t bytes, std::size_t part) {
  const std::vector<std::byte> all(bytes);
  MergedDatagram merged(all, part);
  std::vector<std::size_t> sizes;
  std::size_t at = 0;
  for (auto left = merged.count(); left != 0; --left) {
    const auto one = merged.take();
    if (!one.empty()) {
      EXPECT_EQ(one.data(), all.data() + at);
    }
    at += one.size();
    sizes.push_back(one.size());
  }
  EXPECT_EQ(at, bytes);
  return sizes;
}

TEST(MergedDatagram, IsCutIntoWhatWasSent) {
  EXPECT_THAT(cut(300, 0), ElementsAre(300));
  EXPECT_THAT(cut(300, 100), ElementsAre(100, 100, 100));
  EXPECT_THAT(cut(250, 100), ElementsAre(100, 100, 50));
  EXPECT_THAT(cut(201, 100), ElementsAre(100, 100, 1));
  EXPECT_THAT(cut(100, 300), ElementsAre(100));
  EXPECT_THAT(cut(0, 0), ElementsAre(0));
  EXPECT_THAT(cut(0, 100), ElementsAre(0));
}

TEST(MergedDatagram, PartsThatAreNoPacketsCountAsOne) {
  EXPECT_EQ(cut(65'507, 1).size(), 1u);
  EXPECT_EQ(cut(65'507, 15).size(), 1u);
  EXPECT_EQ(cut(64, 16).size(), 4u);
}

std::vector<std::byte> payload_of(std::uint32_t psn, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i != size; ++i) bytes[i] = std::byte(psn + i);
  return bytes;
}

/// Packets from one address to another, as datagrams. The first `batch` of them are numbered.
class Packets {
 public:
  Packets(const wire::Gid& from, const wire::Gid& to, std::span<const std::size_t> sizes,
          std::size_t batch)
      : datagrams(sizes.size()) {
    wire::IbAddress address;
    address.source_gid = from;
    address.destination_gid = to;
    address.hop_limit = 64;
    for (std::size_t i = 0; i != sizes.size(); ++i) {
      const auto psn = static_cast<std::uint32_t>(i);
      wire::Bth bth;
      bth.opcode = wire::Opcode::RC_SEND_ONLY;
      bth.psn = wire::Psn(psn);
      auto& frame = frames_.emplace_back();
      const auto& payload = payloads_.emplace_back(payload_of(psn, sizes[i]));
      wire::IbHeader(address).emit(bth, {}, payload.size(), frame);
      EXPECT_TRUE(frame.add_segment(payload));
      const auto number = static_cast<std::uint16_t>(i < batch ? i : 0);
      EXPECT_TRUE(datagrams[i].make(frame, wire::kRoceUdpPort, number));
    }
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const auto& one : datagrams) {
      for (const auto piece : one.pieces()) all.insert(all.end(), piece.begin(), piece.end());
    }
    return all;
  }

  std::vector<wire::RoceDatagram> datagrams;

 private:
  std::deque<wire::Frame> frames_;
  std::deque<std::vector<std::byte>> payloads_;
};

/// A socket of a device on a switch, and what it receives.
class Receiver {
 public:
  explicit Receiver(const wire::Gid& gid) : socket(*open_roce_socket(gid)) {
    device_->set_receiver(&recorder_);
    recorder_.then = [this](const wire::Frame& frame) {
      const auto packet = wire::IbPacket::parse(frame);
      ASSERT_TRUE(packet);
      std::vector<std::byte> payload;
      packet->for_each_payload_piece(frame, [&](std::span<const std::byte> piece) {
        payload.insert(payload.end(), piece.begin(), piece.end());
      });
      EXPECT_EQ(payload, payload_of(packet->bth.psn.value(), payload.size()));
      psns_.push_back(packet->bth.psn.value());
    };
  }
  /// The PSNs of all that has come.
  std::vector<std::uint32_t> take() {
    while (socket->receive(*port_, reader_, 64, [](const wire::Gid&) {}) != 0) {
      fabric_.deliver(fabric::kAllFrames);
    }
    return std::exchange(psns_, {});
  }

  std::unique_ptr<RoceSocket> socket;

 private:
  const wire::MacAddress mac_ = wire::MacAddress::from_u64(0x0200'0000'0001);
  fabric::Switch fabric_;
  std::unique_ptr<fabric::Port> port_ = fabric_.create_port("socket");
  std::unique_ptr<fabric::Port> device_ = fabric_.create_port("device");
  fabric::Recorder recorder_;
  wire::DatagramReader reader_{RoceLink::mac(), mac_};
  std::vector<std::uint32_t> psns_;
};

std::vector<std::uint32_t> first(std::uint32_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class RoceBatchesTest : public testing::Test {
 protected:
  Packets packets(std::vector<std::size_t> sizes, std::size_t batch) const {
    return {a_.socket->address(), b_.socket->address(), sizes, batch};
  }
  /// Sends `bytes` from RoCEv2's port of another address, cut into parts.
  static void send_cut(const wire::Gid& from, const wire::Gid& to, std::span<const std::byte> bytes,
                       int part) {
    const os::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    constexpr int kUdpSegment = 103;
    ASSERT_EQ(::setsockopt(socket.get(), IPPROTO_UDP, kUdpSegment, &part, sizeof part), 0);
    const auto own = UdpAddress::of(from, wire::kRoceUdpPort);
    ASSERT_EQ(::bind(socket.get(), &own.any, own.size()), 0);
    const auto there = UdpAddress::of(to, wire::kRoceUdpPort);
    ASSERT_EQ(::sendto(socket.get(), bytes.data(), bytes.size(), 0, &there.any, there.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  const RoceLosses& lost() const { return b_.socket->counters().lost; }

  Receiver a_{loopback_address(31)}, b_{loopback_address(32)};
};

TEST_F(RoceBatchesTest, ABatchIsOneMessageAndArrivesAsItsPackets) {
  const auto all = packets(std::vector<std::size_t>(6, 1024), 6);
  a_.socket->send(all.datagrams);
  EXPECT_EQ(a_.socket->counters().sent, 6u);
  EXPECT_EQ(a_.socket->counters().messages, 1u);
  EXPECT_EQ(b_.take(), first(6));
  EXPECT_EQ(b_.socket->counters().received, 6u);
}

TEST_F(RoceBatchesTest, PacketsThatAreNotNumberedAreMessagesOfTheirOwn) {
  const auto all = packets({1024, 1024, 1024}, 0);
  a_.socket->send(all.datagrams);
  EXPECT_EQ(a_.socket->counters().messages, 3u);
  EXPECT_EQ(b_.take(), first(3));
}

// The kernel cuts the message where the receiver has not asked for merged ones.
TEST_F(RoceBatchesTest, AReceiverThatDoesNotMergeGetsThePackets) {
  RoceSocket::set_merging(b_.socket->fd(), false);
  const auto all = packets(std::vector<std::size_t>(15, 4096), 15);
  a_.socket->send(all.datagrams);
  EXPECT_EQ(a_.socket->counters().messages, 1u);
  for (unsigned i = 0; i != 15; ++i) {
    std::vector<std::byte> bytes(65'536);
    bytes.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, ::recv(b_.socket->fd(), bytes.data(), bytes.size(), 0))));
    EXPECT_EQ(bytes.size(), 12u + 4096 + 4) << i;
  }
  a_.socket->send(all.datagrams);
  EXPECT_EQ(b_.take(), first(15));
}

// The identification of each is in the ICRC: as parts and alone.
TEST_F(RoceBatchesTest, ABatchThatTheKernelRefusesIsSentOneByOne) {
  const auto all = packets(std::vector<std::size_t>(20, 4096), 20);  // longer than a datagram
  a_.socket->send(all.datagrams);
  EXPECT_EQ(a_.socket->counters().sent, 20u);
  EXPECT_EQ(a_.socket->counters().messages, 20u);
  EXPECT_EQ(b_.take(), first(20));
  EXPECT_EQ(lost().corrupt, 0u);
  // That was about these packets.
  const auto fits = packets(std::vector<std::size_t>(10, 4096), 10);
  a_.socket->send(fits.datagrams);
  EXPECT_EQ(a_.socket->counters().messages, 21u);
  EXPECT_EQ(b_.take(), first(10));
}

TEST_F(RoceBatchesTest, MessagesOfOneAndOfManyKeepTheirOrder) {
  const auto numbered = packets(std::vector<std::size_t>(4, 256), 4);
  const auto others = packets(std::vector<std::size_t>(6, 256), 0);
  a_.socket->send(numbered.datagrams);
  a_.socket->send(std::span(others.datagrams).subspan(4, 2));
  EXPECT_EQ(a_.socket->counters().messages, 3u);
  a_.socket->send(std::span(numbered.datagrams).subspan(2, 2));  // these begin no batch
  EXPECT_EQ(a_.socket->counters().messages, 5u);
  EXPECT_THAT(b_.take(), ElementsAre(0, 1, 2, 3, 4, 5, 2, 3));
  EXPECT_EQ(lost().corrupt, 0u);
}

TEST_F(RoceBatchesTest, ALastPacketMayBeShorter) {
  const Packets all(loopback_address(33), b_.socket->address(),
                    std::vector<std::size_t>{256, 256, 100}, 3);
  send_cut(loopback_address(33), b_.socket->address(), all.bytes(), 12 + 256 + 4);
  EXPECT_EQ(b_.take(), first(3));
}

TEST_F(RoceBatchesTest, HostilePartsAreCountedAndHarmNothing) {
  const auto to = b_.socket->address();
  const std::vector<std::byte> junk(60, std::byte{0xa5});
  send_cut(loopback_address(33), to, junk, 1);  // one message that is no packet
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(lost().corrupt, 1u);
  send_cut(loopback_address(33), to, junk, 20);
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(lost().corrupt, 4u);
  send_cut(loopback_address(33), to, junk, 25);  // the last part is shorter than any packet
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(lost().corrupt, 6u);
  EXPECT_EQ(lost().malformed, 1u);
  const std::vector<std::byte> longer(60'000);
  send_cut(loopback_address(33), to, longer, 5000);  // parts longer than any packet
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(lost().malformed, 13u);
  a_.socket->send(packets({700}, 0).datagrams);
  EXPECT_EQ(b_.take(), first(1));
}

// A message that is no packet does not take others with it.
TEST_F(RoceBatchesTest, ACorruptPartIsTheOnlyOneThatIsLost) {
  const Packets all(loopback_address(33), b_.socket->address(), std::vector<std::size_t>(4, 256),
                    4);
  auto bytes = all.bytes();
  bytes[272 + 100] ^= std::byte{4};
  send_cut(loopback_address(33), b_.socket->address(), bytes, 272);
  EXPECT_THAT(b_.take(), ElementsAre(0, 2, 3));
  EXPECT_EQ(lost().corrupt, 1u);
}

bool merges(int socket) {
  int value = 0;
  socklen_t size = sizeof value;
  constexpr int kUdpGro = 104;
  EXPECT_EQ(::getsockopt(socket, IPPROTO_UDP, kUdpGro, &value, &size), 0);
  return value != 0;
}

// Merged datagrams may be for several processes, but reach the one of the first.
TEST(RoceBatches, AmongProcessesOfOneAddressOnlyASingleOneMerges) {
  RoceRefusal refusal;
  const auto gid = loopback_address(34);
  const auto group = RoceGroup::open(gid, free_port(gid), refusal);
  ASSERT_NE(group, nullptr);
  EXPECT_FALSE(merges(group->own()));
  const int one = group->admit(RoceBlock{1}, refusal);
  ASSERT_GE(one, 0);
  EXPECT_TRUE(merges(one));
  const int two = group->admit(RoceBlock{2}, refusal);
  ASSERT_GE(two, 0);
  EXPECT_FALSE(merges(one));
  EXPECT_FALSE(merges(two));
  group->leave(RoceBlock{1});
  EXPECT_FALSE(merges(one));
  EXPECT_TRUE(merges(two));
}

std::vector<std::byte> received_frame(int wire) {
  if (!is_readable(wire)) return {};
  std::vector<std::byte> bytes(65'536);
  const auto size = ::recv(wire, bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  return bytes;
}

/// So many packets with right ICRCs arrive at the wire, in order.
testing::AssertionResult arrive(int wire, std::uint32_t count) {
  for (std::uint32_t i = 0; i != count; ++i) {
    const auto bytes = received_frame(wire);
    const auto packet = wire::IbPacket::parse(wire::Frame::from_bytes(bytes));
    if (!packet) return testing::AssertionFailure() << i << ": " << to_string(packet.error());
    if (packet->bth.psn != wire::Psn(i)) return testing::AssertionFailure() << i << " is another";
  }
  return testing::AssertionSuccess();
}

// An interface without UDP segmentation: the packets are those of a wire.
TEST(RoceBatches, TheKernelNumbersThePartsAsTheIcrcSays) {
  const os::OwnNetwork network;
  if (!network.made()) GTEST_SKIP() << "no namespaces for users here";
  os::OwnNetwork::run(
      "ip link add va mtu 9000 type veth peer name vb mtu 9000 && ip link set va gso_max_segs 1 up "
      "&&"
      " ip link set vb up && ip address add 10.9.0.1/24 dev va &&"
      " ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev va");
  const os::UniqueFd wire(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP)));
  sockaddr_ll end{};
  end.sll_family = AF_PACKET;
  end.sll_protocol = htons(ETH_P_IP);
  end.sll_ifindex = static_cast<int>(::if_nametoindex("vb"));
  ASSERT_EQ(::bind(wire.get(), reinterpret_cast<sockaddr*>(&end), sizeof end), 0);

  const auto own = wire::Gid::from_ipv4(10, 9, 0, 1);
  const auto socket = *open_roce_socket(own);
  const auto to = wire::Gid::from_ipv4(10, 9, 0, 2);
  const Packets all(own, to, std::vector<std::size_t>(15, 4096), 15);
  socket->send(all.datagrams);
  EXPECT_EQ(socket->counters().messages, 1u);
  EXPECT_TRUE(arrive(wire.get(), 15));
  // The kernel refuses this one, since it is longer than a datagram.
  const Packets longer(own, to, std::vector<std::size_t>(20, 4096), 20);
  socket->send(longer.datagrams);
  EXPECT_EQ(socket->counters().messages, 21u);
  EXPECT_TRUE(arrive(wire.get(), 20));
  // A packet without a checksum would overtake those that the receiver's kernel merges.
  const Packets single(own, to, std::vector<std::size_t>{100}, 0);
  socket->send(single.datagrams);
  const auto bytes = received_frame(wire.get());
  ASSERT_GT(bytes.size(), 42u);
  EXPECT_NE(util::load_be16(&bytes[40]), 0);
  // A path that is too narrow loses all of them, each once.
  os::OwnNetwork::run("ip link set va mtu 1500");
  socket->send(all.datagrams);
  EXPECT_EQ(socket->counters().lost.too_long, 15u);
}

}  // namespace
}  // namespace softhca::hub
