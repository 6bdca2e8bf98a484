// TAP devices and packet sockets at real interfaces, in a network of their own.
#include "os/frame_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "os/network_interface.h"
#include "os/packet_socket.h"
#include "os/tap_device.h"
#include "own_network.h"
#include "raw_socket.h"

namespace softhca::os {
namespace {

using testing::HasSubstr;
using Status = FrameFile::Received::Status;
using Sent = FrameFile::Sent;

/// Sends `frame` in pieces of three bytes and the rest.
Sent send_in_pieces(FrameFile& file, Bytes frame) {
  const std::array<iovec, 3> pieces{iovec{frame.data(), 3}, iovec{frame.data() + 3, 20},
                                    iovec{frame.data() + 23, frame.size() - 23}};
  return file.send(pieces);
}

class FrameFileTest : public OwnNetworkTest {
 protected:
  /// Waits for a frame, at most a second.
  FrameFile::Received receive(FrameFile& file) {
    pollfd wait{file.fd(), POLLIN, 0};
    if (::poll(&wait, 1, 1000) != 1) return {};
    return file.receive(room_);
  }
  Bytes receive_bytes(FrameFile& file) {
    const auto received = receive(file);
    EXPECT_EQ(received.status, Status::kFrame);
    return {received.frame.begin(), received.frame.end()};
  }

 private:
  Bytes room_ = Bytes(FrameFile::kRoom);
};

class TapDeviceTest : public FrameFileTest {
 protected:
  void SetUp() override {
    FrameFileTest::SetUp();
    if (IsSkipped()) return;
    if (!may_tap()) GTEST_SKIP() << "no TAP devices for this user";
    tap_ = *TapDevice::open("t0");
    run("ip link set t0 up");
  }
  std::unique_ptr<TapDevice> tap_;
};

TEST_F(TapDeviceTest, FramesCrossUnchangedBothWays) {
  RawSocket host("t0");
  for (const std::size_t size : {60u, 61u, 1514u}) {
    const auto frame = test_frame(size);
    EXPECT_EQ(send_in_pieces(*tap_, frame), Sent::kSent);
    EXPECT_EQ(host.receive(), frame);
    host.send(frame);
    EXPECT_EQ(receive_bytes(*tap_), frame);
  }
}

TEST_F(TapDeviceTest, ATagIsInTheFrame) {
  RawSocket host("t0");
  host.send(test_frame(100, 0x2005));
  EXPECT_EQ(receive_bytes(*tap_), test_frame(100, 0x2005));
}

TEST_F(TapDeviceTest, WithoutFramesItDoesNotWait) {
  Bytes room(FrameFile::kRoom);
  EXPECT_EQ(tap_->receive(room).status, Status::kNothing);
}

TEST_F(TapDeviceTest, AnInterfaceThatIsDownTakesNoFrames) {
  run("ip link set t0 down");
  EXPECT_EQ(send_in_pieces(*tap_, test_frame(60)), Sent::kDown);
}

TEST_F(TapDeviceTest, ADeletedInterfaceHasGone) {
  run("ip link delete t0");
  EXPECT_EQ(receive(*tap_).status, Status::kGone);
  EXPECT_EQ(send_in_pieces(*tap_, test_frame(60)), Sent::kDown);
}

TEST_F(TapDeviceTest, MemoryThatHasGoneIsNotSent) {
  auto frame = test_frame(60);
  const std::array<iovec, 2> pieces{iovec{frame.data(), frame.size()}, iovec{nullptr, 100}};
  EXPECT_EQ(tap_->send(pieces), Sent::kUnreadable);
}

TEST_F(TapDeviceTest, ADeviceThatAnotherProgramHasIsRefused) {
  EXPECT_THAT(TapDevice::open("t0").error().message, HasSubstr("another program has t0 open"));
}

TEST_F(TapDeviceTest, AnotherInterfaceIsRefused) {
  EXPECT_THAT(TapDevice::open("lo").error().message, HasSubstr("lo is no TAP device"));
}

TEST_F(TapDeviceTest, ABadNameIsRefused) {
  for (const auto* name : {"", "a name", "tap%d", "a/b", "sixteen-letters-"}) {
    EXPECT_THAT(TapDevice::open(name).error().message, HasSubstr("cannot be the name")) << name;
  }
}

TEST_F(TapDeviceTest, AUserWithoutTheCapabilityReadsWhatRootCanDo) {
  run("ip tuntap add dev t1 mode tap user 65534");
  std::string missing, foreign;
  // Capabilities are a thread's.
  std::thread([&] {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
    ASSERT_EQ(::syscall(SYS_capget, &header, sets.data()), 0);
    sets[0].effective &= ~CAP_TO_MASK(CAP_NET_ADMIN);
    ASSERT_EQ(::syscall(SYS_capset, &header, sets.data()), 0);
    missing = TapDevice::open("none0").error().message;
    foreign = TapDevice::open("t1").error().message;
  }).join();
  EXPECT_THAT(missing, HasSubstr("there is no none0, and making one needs CAP_NET_ADMIN"));
  EXPECT_THAT(foreign, HasSubstr("t1 is not this user's"));
  run("ip link delete t1");
}

TEST_F(TapDeviceTest, FramesAreWholeAfterAProgramThatTookMergedOnes) {
  tap_.reset();
  run("ip tuntap add dev t1 mode tap");
  {
    const UniqueFd before(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
    ifreq request{};
    std::memcpy(request.ifr_name, "t1", 3);
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    ASSERT_EQ(::ioctl(before.get(), TUNSETIFF, &request), 0);
    ASSERT_EQ(::ioctl(before.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4), 0);
  }
  const auto tap = *TapDevice::open("t1");
  run("ip link set t1 up");
  RawSocket host("t1", true);
  // UDP of 4 bytes and a checksum field; the kernel inserts the checksum.
  auto frame = test_frame(14 + 20 + 12);
  frame[12] = std::byte{8}, frame[13] = std::byte{0}, frame[14] = std::byte{0x45};
  frame[40] = frame[41] = std::byte{0};
  host.send_without_checksum(frame, 34, 6);
  const auto received = receive_bytes(*tap);
  ASSERT_EQ(received.size(), frame.size());
  EXPECT_NE(received[40], std::byte{0});
  run("ip link delete t1");
}

class PacketSocketTest : public FrameFileTest {
 protected:
  void SetUp() override {
    FrameFileTest::SetUp();
    if (IsSkipped()) return;
    add_pair();
    socket_ = *PacketSocket::open("va");
  }
  void TearDown() override {
    if (!IsSkipped()) remove_pair();
  }
  std::unique_ptr<PacketSocket> socket_;
};

TEST_F(PacketSocketTest, FramesCrossUnchangedBothWays) {
  RawSocket peer("vb");
  for (const std::size_t size : {60u, 61u, 1514u}) {
    const auto frame = test_frame(size);
    EXPECT_EQ(send_in_pieces(*socket_, frame), Sent::kSent);
    EXPECT_EQ(peer.receive(), frame);
    peer.send(frame);
    EXPECT_EQ(receive_bytes(*socket_), frame);
  }
}

TEST_F(PacketSocketTest, OwnFramesAndThoseOfTheHostDoNotComeBack) {
  RawSocket host("va");
  host.send(test_frame(60));
  EXPECT_EQ(send_in_pieces(*socket_, test_frame(70)), Sent::kSent);
  RawSocket peer("vb");
  peer.send(test_frame(80));
  EXPECT_EQ(receive_bytes(*socket_), test_frame(80));
}

TEST_F(PacketSocketTest, ATagThatTheKernelTakesOffIsPutBack) {
  RawSocket peer("vb");
  const auto frame = test_frame(100, 0x2005);
  peer.send(frame);
  EXPECT_EQ(receive_bytes(*socket_), frame);
  EXPECT_EQ(send_in_pieces(*socket_, frame), Sent::kSent);
  peer.send(test_frame(60));
  EXPECT_EQ(receive_bytes(*socket_), test_frame(60));
}

TEST_F(PacketSocketTest, AMissingChecksumIsReported) {
  RawSocket peer("vb", true);
  peer.send_without_checksum(test_frame(100), 20, 16);
  const auto plain = receive(*socket_);
  EXPECT_TRUE(plain.rest.checksum);
  EXPECT_EQ(plain.rest.start, 20);
  EXPECT_EQ(plain.rest.offset, 16);
  EXPECT_EQ(plain.rest.segment, 0);
  // The offset counts from the beginning of the frame, with its tag.
  peer.send_without_checksum(test_frame(100, 0x2005), 24, 16);
  EXPECT_EQ(receive(*socket_).rest.start, 24);
}

TEST_F(PacketSocketTest, MergedPacketsAreReported) {
  RawSocket peer("vb", true);
  // IPv4 and TCP, without options; the kernel looks no closer.
  auto frame = test_frame(2000);
  frame[12] = std::byte{8}, frame[13] = std::byte{0}, frame[14] = std::byte{0x45};
  frame[16] = std::byte(1986 >> 8), frame[17] = std::byte(1986 & 0xff), frame[23] = std::byte{6};
  frame[46] = std::byte{0x50};
  peer.send_merged(frame, 54, 700, 34);
  const auto received = receive(*socket_);
  EXPECT_EQ(received.status, Status::kFrame);
  EXPECT_EQ(received.frame.size(), frame.size());
  EXPECT_EQ(received.rest.segment, 700);
  EXPECT_TRUE(received.rest.tcp);
}

TEST_F(PacketSocketTest, TheInterfaceIsPromiscuousWhileItIsOpen) {
  run("ip -d link show va | grep -q 'promiscuity 1'");
  socket_.reset();
  run("ip -d link show va | grep -q 'promiscuity 0'");
}

TEST_F(PacketSocketTest, AFrameWithoutRoomIsLost) {
  RawSocket peer("vb");
  peer.send(test_frame(1000));
  peer.send(test_frame(60));
  Bytes room(200);
  pollfd wait{socket_->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&wait, 1, 1000), 1);
  EXPECT_EQ(socket_->receive(room).status, Status::kTooLong);
  EXPECT_EQ(receive_bytes(*socket_), test_frame(60));
}

TEST_F(PacketSocketTest, FramesThatTheKernelHasNoRoomForAreCounted) {
  RawSocket peer("vb");
  EXPECT_EQ(socket_->lost(), 0u);
  std::size_t sent = 0;
  // Far more than its queue takes.
  for (; sent != 20'000; ++sent) peer.send(test_frame(1000));
  const auto lost = socket_->lost();
  EXPECT_GT(lost, 0u);
  Bytes room(FrameFile::kRoom);
  std::size_t received = 0;
  while (socket_->receive(room).status == Status::kFrame) ++received;
  EXPECT_LE(received + lost, sent);
  EXPECT_EQ(socket_->lost(), lost) << "counted once, and kept";
}

TEST_F(PacketSocketTest, AFrameLongerThanTheMtuIsRefused) {
  EXPECT_EQ(send_in_pieces(*socket_, test_frame(1515)), Sent::kTooLong);
}

TEST_F(PacketSocketTest, AnInterfaceThatIsDownOrHasGoneTakesNoFrames) {
  run("ip link set va down");
  EXPECT_EQ(send_in_pieces(*socket_, test_frame(60)), Sent::kDown);
  run("ip link delete va");
  EXPECT_EQ(send_in_pieces(*socket_, test_frame(60)), Sent::kDown);
}

TEST_F(PacketSocketTest, AMissingInterfaceIsRefused) {
  EXPECT_THAT(PacketSocket::open("none0").error().message,
              HasSubstr("there is no interface none0"));
}

TEST_F(PacketSocketTest, AnInterfaceOfAnotherKindIsRefused) {
  EXPECT_THAT(PacketSocket::open("lo").error().message, HasSubstr("lo is no Ethernet interface"));
}

class NetworkInterfaceTest : public PacketSocketTest {
 protected:
  void SetUp() override {
    PacketSocketTest::SetUp();
    if (IsSkipped()) return;
    va_.emplace(*NetworkInterface::follow(::if_nametoindex("va")));
  }
  /// Waits until the state fulfills `condition`.
  template <class Condition>
  bool becomes(Condition condition) {
    while (!condition(va_->state())) {
      pollfd wait{va_->fd(), POLLIN, 0};
      if (::poll(&wait, 1, 10'000) != 1) return false;
      (void)va_->update();
    }
    return true;
  }
  bool gets_carrier(bool carrier) {
    return becomes([&](const auto& state) { return state.carrier == carrier; });
  }
  std::optional<NetworkInterface> va_;
};

TEST_F(NetworkInterfaceTest, TheCarrierIsFollowed) {
  EXPECT_TRUE(gets_carrier(true));
  run("ip link set vb down");
  EXPECT_TRUE(gets_carrier(false));
  EXPECT_TRUE(va_->state().up);
  run("ip link set vb up");
  EXPECT_TRUE(gets_carrier(true));
  run("ip link set va down");
  EXPECT_TRUE(gets_carrier(false));
  EXPECT_FALSE(va_->state().up);
}

TEST_F(NetworkInterfaceTest, TheMtuIsFollowed) {
  EXPECT_EQ(va_->state().mtu, 1500u);
  run("ip link set va mtu 9000");
  EXPECT_TRUE(becomes([](const auto& state) { return state.mtu == 9000; }));
}

TEST_F(NetworkInterfaceTest, APortThatLeavesItsBridgeIsThereAllTheTime) {
  run("ip link add br0 type bridge && ip link set va master br0 && ip link set va nomaster");
  run("ip link set va mtu 1400 && ip link delete br0");
  EXPECT_TRUE(becomes([](const auto& state) {
    EXPECT_TRUE(state.exists);
    return state.mtu == 1400;
  }));
}

TEST_F(NetworkInterfaceTest, TheStateIsKnownAgainAfterMoreChangesThanTheKernelHasRoomFor) {
  // A message occupies more than 1 KiB of a socket's 208 KiB.
  run("for i in $(seq 300); do echo link set va mtu $((1000 + i % 2)); done | ip -batch -");
  run("ip link set va mtu 1400");
  EXPECT_TRUE(becomes([](const auto& state) { return state.mtu == 1400; }));
}

TEST_F(NetworkInterfaceTest, ADeletedInterfaceHasGone) {
  run("ip link delete va");
  EXPECT_TRUE(becomes([](const auto& state) { return !state.exists; }));
  EXPECT_FALSE(va_->state().carrier);
  EXPECT_FALSE(NetworkInterface::follow(4242));
}

}  // namespace
}  // namespace softhca::os
