// `softhca serve --port tap:NAME` and `packet:INTERFACE`: devices on networks of the host.
#include <gmock/gmock.h>

#include "driver/connectx/frame_receiver.h"
#include "driver/connectx/frame_sender.h"
#include "os/own_network.h"
#include "served_test.h"
#include "util/endian.h"
#include "wire/checksum.h"

namespace softhca::server {
namespace {

using namespace std::chrono_literals;
using driver::WorkStatus;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

class ServeHostPort : public os::OwnNetworkTest {
 protected:
  void SetUp() override {
    OwnNetworkTest::SetUp();
    if (!IsSkipped() && !may_tap()) GTEST_SKIP() << "no TAP devices for this user";
  }
  /// Waits until the server sees this carrier on `port`.
  static bool gets_carrier(const ServedProgram& server, const std::string& port, bool carrier) {
    return eventually([&] { return server.inspect("ports")[port]["carrier"] == carrier; });
  }
};

/// A guest's netdev: sends and receives frames by the driver.
class Netdev {
 public:
  static constexpr std::size_t kSlot = 2048;

  explicit Netdev(const std::string& socket)
      : hca_(connect_host(socket), 1, 8 * kSlot, {.patience = 20s}),
        domain_(must(driver::connectx::TransportDomain::create(hca_.hca()))),
        sender_(must(driver::connectx::FrameSender::create(
            hca_.protection_domain(), *domain_,
            {.cq = hca_.cq(), .send = {.requests = 4, .pieces = 1, .inline_size = 64}}))),
        receiver_(must(driver::connectx::FrameReceiver::create(
            hca_.protection_domain(), *domain_,
            {.cq = hca_.cq(), .receive = {.requests = 4, .pieces = 1}}))) {
    must(receiver_->take_all_frames());
    post();
  }
  driver::connectx::Hca& hca() { return hca_.hca(); }

  /// Sends a frame, and returns the next that arrives and of which `is_wanted`.
  template <class Wanted>
  Bytes exchange(const Bytes& frame, Wanted is_wanted) {
    const std::size_t at = kSlot;
    std::ranges::copy(frame, hca_.memory().begin() + at);
    const auto rest = hca_.piece(at + kHeader, frame.size() - kHeader);
    (void)sender_->post({.id = 1, .header = std::span(frame).first(kHeader), .pieces = {&rest, 1}});
    Bytes found;
    (void)eventually([&] {
      driver::Completion done;
      while (found.empty() && hca_.cq().poll({&done, 1}) == 1) {
        if (done.opcode != driver::CompletionOpcode::kReceive) continue;
        const auto bytes = hca_.memory().first(done.byte_count);
        Bytes received(bytes.begin(), bytes.end());
        if (is_wanted(received)) found = std::move(received);
        post();
      }
      return !found.empty();
    });
    return found;
  }

 private:
  static constexpr std::size_t kHeader = 18;

  void post() {
    const auto room = hca_.piece(0, kSlot);
    (void)receiver_->post({.id = 2, .pieces = {&room, 1}});
  }

  neighbours::LoopHca hca_;
  std::unique_ptr<driver::connectx::TransportDomain> domain_;
  std::unique_ptr<driver::connectx::FrameSender> sender_;
  std::unique_ptr<driver::connectx::FrameReceiver> receiver_;
};

constexpr std::uint32_t kGuestIp = 0x0a4d0002, kHostIp = 0x0a4d0001;

Bytes ethernet_frame(std::uint64_t to, std::uint64_t from, std::uint16_t type, std::size_t size) {
  Bytes frame(size);
  util::store_be16(frame.data(), static_cast<std::uint16_t>(to >> 32));
  util::store_be32(frame.data() + 2, static_cast<std::uint32_t>(to));
  util::store_be16(frame.data() + 6, static_cast<std::uint16_t>(from >> 32));
  util::store_be32(frame.data() + 8, static_cast<std::uint32_t>(from));
  util::store_be16(frame.data() + 12, type);
  return frame;
}

Bytes arp_request(std::uint64_t mac) {
  auto frame = ethernet_frame(0xffffffffffff, mac, 0x0806, 60);
  auto* const arp = frame.data() + 14;
  util::store_be32(arp, 0x00010800);
  util::store_be32(arp + 4, 0x06040001);
  std::copy_n(frame.data() + 6, 6, arp + 8);
  util::store_be32(arp + 14, kGuestIp);
  util::store_be32(arp + 24, kHostIp);
  return frame;
}

Bytes echo_request(std::uint64_t to, std::uint64_t from, std::size_t payload) {
  auto frame = ethernet_frame(to, from, 0x0800, 14 + 20 + 8 + payload);
  auto* const ip = frame.data() + 14;
  util::store_be16(ip, 0x4500);
  util::store_be16(ip + 2, static_cast<std::uint16_t>(frame.size() - 14));
  util::store_be32(ip + 8, 0x40010000);
  util::store_be32(ip + 12, kGuestIp);
  util::store_be32(ip + 16, kHostIp);
  util::store_be16(ip + 10, wire::checksum_of(std::span(frame).subspan(14, 20)));
  auto* const icmp = ip + 20;
  util::store_be32(icmp, 0x08000000);
  util::store_be32(icmp + 4, 0x12340001);
  for (std::size_t i = 0; i != payload; ++i) icmp[8 + i] = std::byte(i);
  util::store_be16(icmp + 2, wire::checksum_of(std::span(frame).subspan(34)));
  return frame;
}

TEST_F(ServeHostPort, AGuestPingsTheKernelOverATap) {
  ServedProgram server({"connectx,mac=02:00:00:00:00:01"}, {"--port=tap:t0"});
  run("ip addr add 10.77.0.1/24 dev t0 && ip link set t0 up");
  ASSERT_TRUE(gets_carrier(server, "tap:t0", true));
  Netdev netdev(server.socket(0));
  const auto arp = netdev.exchange(arp_request(0x020000000001), [](const Bytes& frame) {
    return util::load_be16(frame.data() + 12) == 0x0806 && util::load_be16(frame.data() + 20) == 2;
  });
  ASSERT_GE(arp.size(), 42u);
  EXPECT_EQ(util::load_be32(arp.data() + 28), kHostIp);
  const std::uint64_t host =
      std::uint64_t{util::load_be16(arp.data() + 6)} << 32 | util::load_be32(arp.data() + 8);
  const auto request = echo_request(host, 0x020000000001, 1000);
  const auto reply = netdev.exchange(request, [](const Bytes& frame) {
    return util::load_be16(frame.data() + 12) == 0x0800 && frame[23] == std::byte{1};
  });
  ASSERT_EQ(reply.size(), request.size());
  EXPECT_EQ(reply[34], std::byte{0}) << "no echo reply";
  EXPECT_TRUE(std::ranges::equal(std::span(reply).subspan(38), std::span(request).subspan(38)));
}

TEST_F(ServeHostPort, TwoServersMeetOnABridge) {
  run("ip link add br0 type bridge && ip link set br0 up mtu 9000");
  ServedProgram one({"connectx,mac=02:00:00:00:00:01"}, {"--port=tap:t1"});
  run("ip link add va mtu 9000 type veth peer name vb mtu 9000 && ip link set va up");
  ServedProgram two({"connectx,mac=02:00:00:00:00:02"}, {"--port=packet:va"});
  for (const std::string name : {"t1", "vb"}) {
    run("ip link set " + name + " up mtu 9000 master br0");
  }
  ASSERT_TRUE(gets_carrier(one, "tap:t1", true));
  ASSERT_TRUE(gets_carrier(two, "packet:va", true));
  ASSERT_TRUE(eventually([&] { return one.inspect("ports")["tap:t1"]["mtu"] == 9000; }));
  HcaClient a(one.socket(0), 1), b(two.socket(0), 2);
  a.connect(b);
  b.connect(a);
  auto bytes = a.memory();
  for (std::size_t i = 0; i != bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::ranges::fill(b.memory(), std::byte{0});
  ASSERT_EQ(a.write(b, HcaClient::kMemory, 30s), WorkStatus::kSuccess);
  EXPECT_TRUE(std::ranges::equal(a.memory(), b.memory()));
  run("ip link delete va && ip link delete br0");
}

TEST_F(ServeHostPort, TheCarrierIsTheLinkOfASingleDevice) {
  ServedProgram server({"connectx"}, {"--port=tap:t0"});
  driver::VfioUserHost& host = *connect_host(server.socket(0)).release();
  const std::unique_ptr<driver::VfioUserHost> owner(&host);
  const auto hca = must(driver::connectx::Hca::open(host, {.patience = 20s}));
  EXPECT_FALSE(must(hca->link_is_up()));
  run("ip link set t0 up");
  ASSERT_TRUE(gets_carrier(server, "tap:t0", true));
  EXPECT_TRUE(must(hca->link_is_up()));
}

TEST_F(ServeHostPort, TheLinksOfSeveralDevicesAreThoseToTheirSwitch) {
  ServedProgram server({"connectx", "connectx"}, {"--port=tap:t0"});
  const auto host = connect_host(server.socket(1));
  const auto hca = must(driver::connectx::Hca::open(*host, {.patience = 20s}));
  EXPECT_EQ(server.inspect("ports")["tap:t0"]["carrier"], false);
  EXPECT_TRUE(must(hca->link_is_up()));
}

TEST_F(ServeHostPort, InspectShowsItWithTheDevices) {
  ServedProgram server({"connectx"}, {"--port=tap:t0"});
  run("ip link set t0 up mtu 4200");
  ASSERT_TRUE(gets_carrier(server, "tap:t0", true));
  const auto port = server.inspect()["ports"]["tap:t0"];
  EXPECT_EQ(port["mtu"], 4200);
  EXPECT_EQ(port["dropped"]["above_mtu"], 0);
  EXPECT_EQ(port["dropped"]["received_queue_full"], 0);
  EXPECT_EQ(port["sent"], 0);
}

TEST_F(ServeHostPort, IsRefusedWhereItCannotBe) {
  const auto refused = [](const std::string& device, const std::vector<std::string>& options) {
    ServedProgram server({device}, options);
    EXPECT_NE(server.wait_end(), 0);
    return server.log();
  };
  EXPECT_THAT(refused("connectx", {"--port=tap:t0", "--isolate"}), HasSubstr("not with --isolate"));
  EXPECT_THAT(refused("jingzhao,link=infiniband", {"--port=tap:t0"}),
              HasSubstr("an InfiniBand subnet is within one server"));
  EXPECT_THAT(refused("connectx", {"--port=packet:none0"}),
              HasSubstr("--port packet:none0: there is no interface none0"));
  EXPECT_THAT(refused("connectx", {"--port=tap:"}), HasSubstr("cannot be the name"));
  EXPECT_THAT(refused("connectx", {"--port=udp:1"}), HasSubstr("want switch"));
  EXPECT_THAT(refused("connectx,name=ports", {}), HasSubstr("name=ports"));
}

}  // namespace
}  // namespace softhca::server
