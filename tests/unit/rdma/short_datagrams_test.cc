// Short datagrams to the destination of the previous one take a fast path and are never stored.
// Except for time, an observer sees no difference.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

constexpr MKey kForeignKey{0x9999};

class ShortDatagrams : public ::testing::Test {
 protected:
  struct Setup {
    Setup() {
      pair.connect(QpType::kUd);
      pair.a.fill(0, 0x10000, 1);
      pair.keep_sent = true;
    }
    SendRequest datagram(std::uint32_t cookie, std::uint32_t length, unsigned destination = 1) {
      auto request = datagram_to(pair.b, cookie % 1000, length);
      request.cookie = cookie;
      request.ud.traffic_class = static_cast<std::uint8_t>(destination);
      request.ud.number = destination;
      return request;
    }
    void post_receive(std::uint32_t cookie, std::uint32_t length = 2048) {
      pair.b.post_receive(*pair.qb, {End::sge(0x20000 + cookie % 16 * 4096, length)}, cookie);
    }
    /// All observable effects.
    std::vector<std::string> story() {
      std::vector<std::string> lines;
      for (const auto& s : pair.a.hca.sends) {
        lines.push_back(fmt::format("sent {} {} {}", s.cookie, static_cast<int>(s.opcode),
                                    static_cast<int>(s.status)));
      }
      for (const auto& [qpn, c] : pair.b.hca.receives) {
        lines.push_back(fmt::format("got {} {} {} {} {} {:#x} {}", c.cookie,
                                    static_cast<int>(c.opcode), static_cast<int>(c.status),
                                    c.byte_count, c.immediate, c.source_qpn.value(), c.solicited));
      }
      for (const auto& [packet, to_b] : pair.sent) {
        lines.push_back(fmt::format("packet {} psn {} of {} bytes", packet.info().name,
                                    packet.bth.psn.value(), packet.payload_size));
      }
      const auto& counters = pair.b.transport.counters();
      lines.push_back(fmt::format("{} packets, {} bytes, {} without a receive", counters.rx_packets,
                                  counters.rx_bytes, counters.dropped_for(Drop::kNoReceive)));
      const auto* bytes = reinterpret_cast<const char*>(pair.b.at(0x20000));
      lines.push_back(std::string(bytes, 16 * 4096));
      return lines;
    }
    Pair pair{{.trains = true}};
  };
  static std::vector<std::string> tell(unsigned seed, bool quick, unsigned& taken);
};

std::vector<std::string> ShortDatagrams::tell(unsigned seed, bool quick, unsigned& taken) {
  Setup setup;
  auto& pair = setup.pair;
  pair.a.hca.gives_short_datagrams = pair.b.hca.gives_pieces = quick;
  std::mt19937 random(seed);
  std::uint32_t cookie = 0;
  for (int burst = 0; burst != 60; ++burst) {
    const auto count = 1 + random() % 12;
    // Sometimes fewer receives than datagrams.
    for (auto i = random() % 16; i != 0 && pair.b.hca.receives_posted[Qpn(0x22)].size() < 20; --i) {
      setup.post_receive(cookie + i, random() % 40 == 0 ? 64 : 2048);
    }
    for (auto i = count; i != 0; --i) {
      const auto destination = 1 + (random() % 8 == 0);
      const auto length = random() % 6 == 0 ? random() % 1025 : 1 + random() % 100;
      auto request = setup.datagram(++cookie, length, destination);
      request.signaled = random() % 3 == 0;
      request.solicited = random() % 4 == 0;
      if (random() % 5 == 0) {
        request.opcode = SendOpcode::kSendWithImmediate;
        request.immediate = static_cast<std::uint32_t>(random());
      }
      if (burst == 59 && random() % 4 == 0) request.sges[0].lkey = kForeignKey;
      pair.a.post(*pair.qa, request);
    }
    pair.drive();
  }
  taken += pair.a.hca.short_datagrams;
  return setup.story();
}

TEST_F(ShortDatagrams, FareAsOnTheSlowPath) {
  unsigned taken = 0;
  unsigned unused = 0;
  for (unsigned seed = 1; seed != 30; ++seed) {
    ASSERT_EQ(tell(seed, true, taken), tell(seed, false, unused)) << "seed " << seed;
  }
  EXPECT_GT(taken, 1'000u);
  EXPECT_EQ(unused, 0u);
}

// IBTA 10.3.1.8: requests posted behind the failed one are flushed.
TEST_F(ShortDatagrams, OneWhoseMemoryMayNotBeReadFailsInItsTurn) {
  Setup setup;
  auto& pair = setup.pair;
  for (std::uint32_t i = 0; i != 4; ++i) setup.post_receive(i);
  pair.a.post(*pair.qa, setup.datagram(1, 20));
  pair.drive();
  for (std::uint32_t i = 2; i != 6; ++i) {
    auto request = setup.datagram(i, 20);
    if (i == 4) request.sges[0].lkey = kForeignKey;
    pair.a.hca.sends_posted[Qpn(0x11)].push_back(request);
  }
  pair.a.transport.doorbell_send(*pair.qa);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(),
              ElementsAre(kSuccess, kSuccess, kSuccess, kLocalProtection, kFlushed));
  EXPECT_EQ(pair.b.hca.receives.size(), 3u);
  EXPECT_EQ(pair.a.hca.short_datagrams, 3u) << "those behind the first, and the one that fails";
}

// The sender's address may have changed meanwhile.
TEST_F(ShortDatagrams, TakeTheAddressThatThePortHasNow) {
  Setup setup;
  auto& pair = setup.pair;
  for (std::uint32_t i = 0; i != 4; ++i) setup.post_receive(i);
  for (std::uint32_t i = 1; i != 3; ++i) pair.a.post(*pair.qa, setup.datagram(i, 20));
  pair.drive();
  ASSERT_EQ(pair.b.hca.receives.size(), 2u);
  pair.a.transport.gids().clear(0);
  pair.a.post(*pair.qa, setup.datagram(3, 20));
  pair.drive();
  EXPECT_NE(pair.a.hca.sends.back().status, kSuccess);
  EXPECT_EQ(pair.b.hca.receives.size(), 2u);
}

// A receive fetched for a message that falls back to the slow path serves that message.
TEST_F(ShortDatagrams, AReceiveWithoutRoomForItServesTheNextThatFits) {
  Setup setup;
  auto& pair = setup.pair;
  setup.post_receive(0);
  setup.post_receive(7, 50);
  setup.post_receive(8);
  for (std::uint32_t i = 1; i != 3; ++i) pair.a.post(*pair.qa, setup.datagram(i, 20));
  pair.a.post(*pair.qa, setup.datagram(3, 10));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(pair.b.hca.receives.back().completion.cookie, 7u);
  EXPECT_EQ(pair.b.hca.receives.back().completion.byte_count, 50u);
}

}  // namespace
}  // namespace softhca::rdma::test
