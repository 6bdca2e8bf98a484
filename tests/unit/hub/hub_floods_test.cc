// Peers and processes that send without end: what they cost a hub is counted, and others do not
// notice it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hub/cm_packets.h"
#include "hub/hub.h"
#include "hub/join.h"
#include "hub/request.h"
#include "hub/roce_host.h"
#include "hub/udp_sender.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;

/// Most datagrams of an address that a turn of the loop takes (README.md).
constexpr std::uint64_t kPerTurn = 32;

class RoceFloodTest : public testing::Test {
 protected:
  RoceFloodTest() {
    util::set_log_sink([this](auto, auto) { ++lines; });
    RoceRefusal refusal;
    a = host.join(17, address, refusal);
    b = host.join(4, address, refusal);
    EXPECT_TRUE(host.listen(4, CmService{.id = kService, .address = CmService::all()}));
  }
  ~RoceFloodTest() override { util::set_log_sink(nullptr); }

  /// A packet that no process wants, of changing kind.
  static std::vector<std::byte> junk(unsigned i) {
    const auto bytes = [](const CmPacket& packet) {
      return std::vector(packet.bytes.begin(), packet.bytes.end());
    };
    switch (i % 6) {
      case 0:
        return packet_to(200, 1);  // of a block that no process has
      case 1:
        return packet_to(0, 1);  // QP1, and no message
      case 2:
        return bytes(cm_packet(Cm::REP, i, 0x09'00'00'00 | i));  // of no connection
      case 3:
        return bytes(cm_request(kService + 1 + i, i));  // for a service without a listener
      case 4:
        return {std::byte{1}};
      default:
        return bytes(cm_packet(Cm::DREQ, i, 0x0a'00'00'00 | i));
    }
  }
  std::uint64_t handled() const {
    const auto& cm = host.counters().cm;
    return cm.forwarded + cm.malformed + cm.unknown + cm.over_rate;
  }

  const wire::Gid address = wire::Gid::from_ipv4(127, 0, 0, 1);
  UdpSender flood{address};
  UdpSender honest{wire::Gid::from_ipv4(127, 0, 0, 2)};
  const std::uint16_t port = free_port(address);
  std::unique_ptr<os::EventLoop> loop = *os::EventLoop::create();
  unsigned lines = 0;               ///< of the log
  std::vector<unsigned> delivered;  ///< processes
  RoceHost host{*loop,
                {.port = port, .clock = [] { return util::Time(1h); }},
                [this](unsigned number, const ForwardedDatagram&) {
                  delivered.push_back(number);
                  return true;
                }};
  RoceHost::Seat a, b;
};

TEST_F(RoceFloodTest, AHundredThousandPacketsThatNobodyWantsCostOthersNothing) {
  constexpr unsigned kPackets = 100'000, kPerRound = 25, kRoundsPerMessage = 50;
  constexpr unsigned kMessages = kPackets / kPerRound / kRoundsPerMessage;
  unsigned arrived = 0;
  std::uint64_t most = 0;
  for (unsigned i = 0; i != kPackets; ++i) {
    flood.send(address, port, junk(i));
    if (i % kPerRound != kPerRound - 1) continue;
    const bool is_turn_of_honest = i / kPerRound % kRoundsPerMessage == kRoundsPerMessage - 1;
    if (is_turn_of_honest) {
      honest.send(address, port, cm_request(kService, i));
      honest.send(address, port, packet_to(a.block, 7));
    }
    const auto before = handled();
    delivered.clear();
    loop->run_once(util::Time::min());
    most = std::max(most, handled() - before);
    if (!is_turn_of_honest) continue;
    // In the turn in which they would arrive without the flood.
    arrived += static_cast<unsigned>(std::ranges::count(delivered, 4u));
    EXPECT_EQ(received_at(a.socket), packet_to(a.block, 7)) << "the hub has no part in it";
  }
  EXPECT_EQ(arrived, kMessages);
  EXPECT_LE(most, kPerTurn);
  const auto counters = host.counters();
  EXPECT_EQ(handled(), kPackets + kMessages);
  EXPECT_EQ(counters.cm.unexpected, CmDispatch::Options{}.unexpected_rate.burst)
      << "what the oldest process must answer";
  EXPECT_EQ(counters.groups.overflow + counters.groups.dropped, 0u);
  EXPECT_EQ(lines, 0u);
}

// Reading the listeners of many processes is most of the work: other descriptors have their turn.
TEST_F(RoceFloodTest, ATurnEndsWithItsWork) {
  constexpr unsigned kProcesses = 100, kCatchUpWork = 500;
  std::uint64_t read = 0;
  const auto second = wire::Gid::from_ipv4(127, 0, 0, 3);
  RoceHost many{
      *loop,
      {.port = port, .clock = [] { return util::Time(1h); }, .catch_up = [&](unsigned) { ++read; }},
      [](unsigned, const ForwardedDatagram&) { return true; }};
  RoceRefusal refusal;
  for (unsigned number = 1; number <= kProcesses; ++number)
    (void)many.join(number, second, refusal);
  constexpr unsigned kRequests = 32;
  for (unsigned i = 0; i != kRequests; ++i) flood.send(second, port, cm_request(kService + 1, i));
  constexpr auto kMost = os::EventLoop::kTurnWork / (kProcesses * kCatchUpWork) * kProcesses;
  for (unsigned turn = 0; turn != kRequests; ++turn) {
    const auto before = read;
    loop->run_once(util::Time::min());
    ASSERT_LE(read - before, kMost);
  }
  EXPECT_EQ(read, kRequests * kProcesses);
  EXPECT_EQ(many.counters().cm.unexpected, kRequests);
}

// The kernel keeps what the hub has not read, up to the socket's buffer.
TEST_F(RoceFloodTest, ABurstIsTakenInTurnsAndTheRestIsDropped) {
  constexpr unsigned kPackets = 20'000;
  for (unsigned i = 0; i != kPackets; ++i) flood.send(address, port, packet_to(200, 1));
  for (unsigned turn = 0; turn != 2 * kPackets / kPerTurn; ++turn) {
    const auto before = handled();
    loop->run_once(util::Time::min());
    ASSERT_LE(handled() - before, kPerTurn);
  }
  const auto counters = host.counters();
  EXPECT_EQ(handled() + counters.groups.overflow, kPackets);
  honest.send(address, port, cm_request(kService, 1));
  loop->run_once(util::Time::min());
  EXPECT_EQ(delivered, std::vector{4u});
}

// A packet for another process's block never reaches this one, and the hub does not see it.
TEST_F(RoceFloodTest, PacketsForAnotherBlockFillItsSocketOnly) {
  for (unsigned i = 0; i != 20'000; ++i) flood.send(address, port, packet_to(a.block, 1));
  honest.send(address, port, packet_to(b.block, 7));
  EXPECT_EQ(received_at(b.socket), packet_to(b.block, 7));
  loop->run_once(util::Time::min());
  EXPECT_EQ(handled(), 0u);
}

/// A hub whose loop the test runs.
class RequestFloodTest : public testing::Test {
 protected:
  RequestFloodTest() {
    std::string made = testing::TempDir() + "softhca-XXXXXX";
    directory_ = ::mkdtemp(made.data());
    util::set_log_sink([](auto, auto) {});
    Hub::Options options;
    options.clock = [] { return util::Time(1h); };
    options.poll = {};
    hub_ = *Hub::create(*loop_, directory_ + "/hub", options);
  }
  ~RequestFloodTest() override {
    hub_.reset();
    util::set_log_sink(nullptr);
    std::filesystem::remove_all(directory_);
  }
  Joined join_hub() {
    std::optional<Joined> joined;
    std::atomic<bool> done = false;
    std::thread waits([&] {
      auto result = join(directory_ + "/hub");
      if (result) joined.emplace(*std::move(result));
      done = true;
    });
    while (!done) loop_->run_once(util::Time::min());
    waits.join();
    EXPECT_TRUE(joined);
    return *std::move(joined);
  }

  std::string directory_;
  std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::create();
  std::unique_ptr<Hub> hub_;
};

// A turn of the loop serves as many bytes of a process as the longest request has.
TEST_F(RequestFloodTest, ATurnServesAsMuchAsOneLongRequestOfAProcess) {
  const auto joined = join_hub();
  constexpr unsigned kRequests = 200;
  std::array<std::byte, Request::kSizeMax> room;
  const Request request{.kind = Request::Kind::kJoinAddress,
                        .address = wire::Gid::from_ipv4(240, 0, 0, 1),
                        .service = 0};
  std::vector<std::byte> all;
  for (unsigned i = 0; i != kRequests; ++i) {
    const auto bytes = request.write(room);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  ASSERT_EQ(::send(joined.socket.get(), all.data(), all.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(all.size()));
  const auto refused = [this] { return hub_->station().host().counters().refused; };
  unsigned turns = 0;
  for (; refused() != kRequests && turns != 2 * kRequests; ++turns) {
    const auto before = refused();
    loop_->run_once(util::Time::min());
    ASSERT_LE(refused(), before + 2);
  }
  EXPECT_EQ(refused(), kRequests);
  EXPECT_GE(turns * Request::kSizeMax, all.size());
}

}  // namespace
}  // namespace softhca::hub
