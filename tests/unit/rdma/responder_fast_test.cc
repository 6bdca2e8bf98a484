// The fast path for one-packet SENDs and READs, and for datagrams, of a cached peer. Refusals and
// retransmissions must be the same as on the slow path.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

constexpr std::uint64_t kFrom = 65536;

class ResponderFast : public ::testing::Test {
 protected:
  ResponderFast() {
    pair_.adjust = [](QpAttributes& attributes) {
      attributes.retry_count = 1;
      attributes.rnr_retry = 1;
      attributes.ack_timeout = 8;
    };
    pair_.a.fill(0, 4096, 1);
    pair_.b.fill(kFrom, 4096, 2);
    pair_.connect();
    for (unsigned i = 0; i != 2;
         ++i) {  // from the second on, both ends have cached the headers and the keys
      pair_.b.post_receive(*pair_.qb, {End::sge(8192, 64)});
      drive(send(0, 64), WorkStatus::kSuccess);
      drive(read(4096, kFrom, 64), WorkStatus::kSuccess);
    }
    pair_.b.hca.receives.clear();
  }
  void drive(const SendRequest& request, WorkStatus expected) {
    pair_.a.hca.sends.clear();
    pair_.a.post(*pair_.qa, request);
    pair_.drive();
    ASSERT_EQ(pair_.a.hca.sends.size(), 1u);
    EXPECT_EQ(pair_.a.hca.sends[0].status, expected);
  }
  /// Gives b other rights, and makes it cache a's headers again.
  template <class Change>
  void change_b(Change change) {
    auto attributes = pair_.attributes_for(pair_.b, pair_.a, pair_.qa->qpn());
    change(attributes);
    Pair::change_drained(pair_.b, *pair_.qb, attributes);
    drive(write(0, 8192, 64), WorkStatus::kSuccess);
  }
  MemoryKey& key_of(End& end) { return *end.keys.find(kKey); }

  Pair pair_{{.trains = true}};
};

// IBTA 9.9.3
TEST_F(ResponderFast, AReadIsRefusedWhereTheQpForbidsIt) {
  change_b([](QpAttributes& attributes) { attributes.access_flags.remote_read = false; });
  drive(read(4096, kFrom, 64), WorkStatus::kRemoteInvalidRequest);
}

// IBTA 9.7.4.1.5: the responder accepts as many READs as its resources allow; without any, none.
TEST_F(ResponderFast, AReadIsRefusedByAQpWithoutRoomForOne) {
  change_b([](QpAttributes& attributes) { attributes.max_dest_rd_atomic = 0; });
  drive(read(4096, kFrom, 64), WorkStatus::kRemoteInvalidRequest);
}

// IBTA 10.6.3
TEST_F(ResponderFast, AReadReachesAsFarAsTheMemoryOfTheKey) {
  pair_.b.fill(kMemorySize - 64, 64, 7);
  drive(read(4096, kMemorySize - 64, 64), WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair_.a.at(4096), pair_.b.at(kMemorySize - 64), 64), 0);
  drive(read(4096, kMemorySize - 63, 64), WorkStatus::kRemoteAccess);
}

TEST_F(ResponderFast, AReadIsRefusedWhenItsKeyLosesTheRight) {
  auto attributes = key_of(pair_.b).attributes();
  attributes.access = kLocalRead | kLocalWrite | kRemoteWrite;
  pair_.b.keys.change(key_of(pair_.b), [&] { key_of(pair_.b).set_attributes(attributes); });
  drive(read(4096, kFrom, 64), WorkStatus::kRemoteAccess);
}

TEST_F(ResponderFast, DataOfAReadGoNowhereWhenTheirKeyMayOnlyBeRead) {
  auto attributes = key_of(pair_.a).attributes();
  attributes.access = kLocalRead;
  pair_.a.keys.change(key_of(pair_.a), [&] { key_of(pair_.a).set_attributes(attributes); });
  drive(read(4096, kFrom, 64), WorkStatus::kLocalProtection);
}

// IBTA 9.7.5.1.2: a READ whose response is lost is sent again.
TEST_F(ResponderFast, AReadWhoseResponseIsLostIsAnsweredAgain) {
  pair_.b.fill(kFrom, 4096, 9);
  bool lost = false;
  pair_.script = [&](const wire::IbPacket& packet, bool to_b) {
    const bool data = !to_b && packet.info().operation == wire::Operation::kRdmaReadResponse;
    return data && !std::exchange(lost, true) ? Fate::kLose : Fate::kDeliver;
  };
  drive(read(4096, kFrom, 256), WorkStatus::kSuccess);
  EXPECT_TRUE(lost);
  EXPECT_EQ(std::memcmp(pair_.a.at(4096), pair_.b.at(kFrom), 256), 0);
  EXPECT_EQ(pair_.a.counters.local_ack_timeout_err, 1u);
}

// IBTA 9.7.5.1: a response acknowledges the requests before it.
TEST_F(ResponderFast, AReadAcknowledgesTheWritesBeforeIt) {
  pair_.a.hca.sends.clear();
  const auto before = pair_.b.transmitted;
  pair_.b.queued = 2;
  pair_.a.post(*pair_.qa, write(0, 8192, 64));
  pair_.a.post(*pair_.qa, read(4096, kFrom, 64));
  pair_.drive();
  EXPECT_EQ(pair_.a.hca.sends.size(), 2u);
  EXPECT_EQ(pair_.b.transmitted - before, 1u);
}

// IBTA 9.7.5.1: answers leave in the order of their requests.
TEST_F(ResponderFast, AReadIsAnsweredBehindTheReadsBeforeIt) {
  pair_.b.fill(kFrom, 65536, 11);
  pair_.a.hca.sends.clear();
  pair_.a.post(*pair_.qa, read(16384, kFrom, 16384));
  pair_.a.post(*pair_.qa, read(4096, kFrom + 8192, 64));
  pair_.drive();
  ASSERT_EQ(pair_.a.hca.sends.size(), 2u);
  for (const auto& done : pair_.a.hca.sends) EXPECT_EQ(done.status, WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair_.a.at(16384), pair_.b.at(kFrom), 16384), 0);
  EXPECT_EQ(std::memcmp(pair_.a.at(4096), pair_.b.at(kFrom + 8192), 64), 0);
  EXPECT_EQ(pair_.a.counters.implied_nak_seq_err, 0u);
}

// The READ response is sent outside the device's turn, so its copy is charged to the device.
TEST_F(ResponderFast, AReadIsChargedWithItsData) {
  unsigned answers = 0;
  std::int64_t first = 0;
  const auto transmit = pair_.b.on_transmit;
  pair_.b.on_transmit = [&](End& end, const wire::Frame& frame) {
    const auto work = pair_.b.keys.work().drain();
    if (++answers == 2) first = work;
    transmit(end, frame);
  };
  for (unsigned i = 0; i != 2; ++i) pair_.a.post(*pair_.qa, read(4096, kFrom, 1024));
  pair_.drive();
  EXPECT_EQ(answers, 2u);
  EXPECT_EQ(first, Engine::kStepWork + 1024 / Engine::kBytesPerUnit);
}

// IBTA 9.7.4.1.4, 10.8.3.3: a SEND longer than its receive request.
TEST_F(ResponderFast, ASendLongerThanItsReceiveIsRefused) {
  pair_.b.post_receive(*pair_.qb, {End::sge(8192, 63)});
  drive(send(0, 64), WorkStatus::kRemoteInvalidRequest);
  ASSERT_EQ(pair_.b.hca.receives.size(), 1u);
  EXPECT_EQ(pair_.b.hca.receives[0].completion.status, WorkStatus::kLocalLength);
}

TEST_F(ResponderFast, ASendGoesOverTheBordersOfPieces) {
  pair_.b.post_receive(*pair_.qb, {End::sge(8192, 10), End::sge(12288, 100)});
  drive(send(0, 64), WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(8192), 10), 0);
  EXPECT_EQ(std::memcmp(pair_.a.at(10), pair_.b.at(12288), 54), 0);
}

TEST_F(ResponderFast, ASendIsNotWrittenWhereItMayNotBe) {
  auto attributes = key_of(pair_.b).attributes();
  attributes.access = kLocalRead;
  pair_.b.keys.change(key_of(pair_.b), [&] { key_of(pair_.b).set_attributes(attributes); });
  pair_.b.post_receive(*pair_.qb, {End::sge(8192, 64)});
  drive(send(0, 64), WorkStatus::kRemoteOperation);
  ASSERT_EQ(pair_.b.hca.receives.size(), 1u);
  EXPECT_EQ(pair_.b.hca.receives[0].completion.status, WorkStatus::kLocalProtection);
}

// IBTA 9.7.5.2.8: a responder without a receive request sends one RNR NAK for each attempt.
TEST_F(ResponderFast, ASendWithoutReceiveIsNotReady) {
  drive(send(0, 64), WorkStatus::kRnrRetryExceeded);
  EXPECT_EQ(pair_.a.counters.rnr_naks_received, 2u);
  EXPECT_EQ(pair_.b.counters.out_of_buffer, 2u);
}

// IBTA 11.4.2.1
TEST_F(ResponderFast, ASendGivesItsLengthAndWhetherItIsSolicited) {
  for (const bool solicited : {true, false}) {
    pair_.b.hca.receives.clear();
    pair_.b.post_receive(*pair_.qb, {End::sge(8192, 4096)});
    auto request = send(0, 200);
    request.solicited = solicited;
    drive(request, WorkStatus::kSuccess);
    ASSERT_EQ(pair_.b.hca.receives.size(), 1u);
    EXPECT_EQ(pair_.b.hca.receives[0].completion.byte_count, 200u);
    EXPECT_EQ(pair_.b.hca.receives[0].completion.solicited, solicited);
    EXPECT_EQ(pair_.b.hca.receives[0].completion.pkey, 0xffff);
  }
}

// Headers of frames are not cleared between frames: those of a datagram leave their DETH behind.
TEST_F(ResponderFast, AMessageOfAConnectionNamesNoSenderOfADatagram) {
  for (auto* end : {&pair_.a, &pair_.b}) {
    auto& other = end == &pair_.a ? pair_.b : pair_.a;
    auto& qp = end->create_qp(Qpn(0x44), QpType::kUd, {}, {});
    Pair::to_rts(*end, qp, pair_.attributes_for(*end, other, Qpn(0)));
    end->post_receive(qp, {End::sge(12288, 200)});
  }
  auto datagram = datagram_to(pair_.b, 0, 64, Qpn(0x44));
  pair_.a.post(*pair_.a.transport.find(Qpn(0x44)), datagram);
  pair_.drive();
  pair_.b.post_receive(*pair_.qb, {End::sge(8192, 64)});
  drive(send(0, 64), WorkStatus::kSuccess);
  ASSERT_EQ(pair_.b.hca.receives.size(), 2u);
  EXPECT_EQ(pair_.b.hca.receives[0].completion.source_qpn, Qpn(0x44));
  EXPECT_EQ(pair_.b.hca.receives[1].completion.source_qpn, Qpn{}) << "as on the slow path";
}

// PRM, QP context, cs_res and cs_req: the device puts short data into the CQE.
TEST_F(ResponderFast, DataThatGoWithTheCompletionAreNotPlaced) {
  pair_.qb->set_completion_data({.of_sends = 64});
  pair_.b.fill(8192, 128, 5);
  pair_.b.post_receive(*pair_.qb, {End::sge(8192, 128)});
  drive(send(0, 64), WorkStatus::kSuccess);
  EXPECT_NE(std::memcmp(pair_.a.at(0), pair_.b.at(8192), 64), 0);
  pair_.b.post_receive(*pair_.qb, {End::sge(8192, 128)});
  drive(send(0, 65), WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(8192), 65), 0);

  pair_.qa->set_completion_data({.of_reads = 32});
  pair_.a.fill(4096, 64, 6);
  drive(read(4096, kFrom, 32), WorkStatus::kSuccess);
  EXPECT_NE(std::memcmp(pair_.a.at(4096), pair_.b.at(kFrom), 32), 0);
  drive(read(4096, kFrom, 33), WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair_.a.at(4096), pair_.b.at(kFrom), 33), 0);
}

/// All that software sees of a connection: completions and memory of both ends. `in_process`:
/// frames stay in the process, where they take the fast paths. As bytes they take the slow paths.
std::vector<std::string> story_of_connection(unsigned seed, bool in_process, unsigned& fast) {
  constexpr std::uint64_t kRegion = 65536;
  Pair pair({.trains = in_process});
  pair.connect();
  for (auto* end : {&pair.a, &pair.b}) end->fill(0, 4 * kRegion, seed);
  std::mt19937 random(seed);
  std::uint32_t cookie = 0;
  for (unsigned burst = 0; burst != 40; ++burst) {
    for (unsigned i = 0; i != 8; ++i) {
      const auto at = 2 * kRegion + random() % 16 * 2048;
      std::vector<Sge> pieces{End::sge(at, 2048)};
      if (random() % 8 == 0) pieces = {End::sge(at, 7), End::sge(at + 1024, 2041)};
      pair.b.post_receive(*pair.qb, pieces, ++cookie);
    }
    for (auto left = 1 + random() % 8; left != 0; --left) {
      const auto length = static_cast<std::uint32_t>(random() % (random() % 4 == 0 ? 2049 : 1025));
      const auto from = random() % 16 * 2048, to = kRegion + random() % 16 * 2048;
      auto request = random() % 3 == 0   ? send(from, length)
                     : random() % 2 == 0 ? write(from, to, length)
                                         : read(to, from, length);
      request.cookie = ++cookie;
      request.signaled = random() % 4 != 0;
      request.solicited = random() % 4 == 0;
      // Ends the connection.
      if (burst == 39 && random() % 4 == 0) request.rkey = MKey(0x9999);
      pair.a.post(*pair.qa, request);
    }
    pair.drive();
  }
  fast += pair.b.hca.pieces;
  std::vector<std::string> lines;
  for (const auto& s : pair.a.hca.sends) {
    lines.push_back(fmt::format("sent {} {} {} {}", s.cookie, static_cast<int>(s.opcode),
                                static_cast<int>(s.status), s.byte_count));
  }
  for (const auto& [qpn, c] : pair.b.hca.receives) {
    lines.push_back(fmt::format("got {} {} {} {} {}", c.cookie, static_cast<int>(c.status),
                                c.byte_count, c.solicited, c.pkey));
  }
  for (auto* end : {&pair.a, &pair.b}) {
    lines.emplace_back(reinterpret_cast<const char*>(end->at(0)), 4 * kRegion);
  }
  return lines;
}

TEST(ResponderFastAndSlow, AConnectionFaresAsOnTheSlowPaths) {
  unsigned fast = 0, none = 0;
  for (unsigned seed = 1; seed != 20; ++seed) {
    const auto expected = story_of_connection(seed, false, none);
    ASSERT_EQ(story_of_connection(seed, true, fast), expected) << "seed " << seed;
  }
  EXPECT_GT(fast, 500u);
  EXPECT_EQ(none, 0u);
}

class DatagramFast : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTo = 0x20000;
  static constexpr std::size_t kGrh = 40;

  DatagramFast() {
    pair_.connect(QpType::kUd);
    pair_.a.fill(0, 4096, 1);
    // The first datagram fills the cache.
    for (unsigned i = 0; i != 2; ++i) {
      receive({End::sge(kTo, 200)});
      send_one();
    }
    EXPECT_EQ(pair_.b.hca.receives.size(), 2u);
    pair_.b.hca.receives.clear();
  }
  void receive(std::vector<Sge> pieces) { pair_.b.post_receive(*pair_.qb, std::move(pieces)); }
  void send_one(std::uint32_t qkey = 0x1111) {
    auto request = datagram_to(pair_.b, 0, 64);
    request.ud.qkey = qkey;
    pair_.a.post(*pair_.qa, request);
    pair_.drive();
  }
  const ReceiveCompletion& received() { return pair_.b.hca.receives.at(0).completion; }

  Pair pair_{{.trains = true}};
};

// Annex A17 17.4.4: 20 bytes of zero, then the IPv4 header.
TEST_F(DatagramFast, BringsItsHeaderAndWhereItCameFrom) {
  std::array<std::byte, kGrh> first;
  std::memcpy(first.data(), pair_.b.at(kTo), kGrh);
  EXPECT_EQ(first[20], std::byte{0x45});
  pair_.b.fill(kTo, 200, 3);
  receive({End::sge(kTo, 200)});
  send_one();
  EXPECT_EQ(std::memcmp(first.data(), pair_.b.at(kTo), kGrh), 0) << "as on the long way";
  EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(kTo + kGrh), 64), 0);
  EXPECT_EQ(received().source_qpn, Qpn(0x11));
  EXPECT_EQ(received().byte_count, kGrh + 64);
  EXPECT_EQ(received().network, wire::NetworkHeader::kIpv4);
}

// IBTA 10.2.5
TEST_F(DatagramFast, IsDroppedWithAWrongQkey) {
  receive({End::sge(kTo, 200)});
  for (unsigned i = 0; i != 2; ++i) send_one(0x2222);
  EXPECT_TRUE(pair_.b.hca.receives.empty());
  EXPECT_EQ(pair_.b.transport.counters().dropped_for(Drop::kQkey), 2u);
}

// IBTA 9.8.3
TEST_F(DatagramFast, GoesOverTheBordersOfPieces) {
  receive({End::sge(kTo, 50), End::sge(kTo + 4096, 100)});
  send_one();
  EXPECT_EQ(received().status, WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair_.a.at(10), pair_.b.at(kTo + 4096), 54), 0);
}

// IBTA 10.6.3
TEST_F(DatagramFast, IsNotWrittenWhereItMayNotBe) {
  auto& key = *pair_.b.keys.find(kKey);
  auto attributes = key.attributes();
  attributes.access = kLocalRead;
  pair_.b.keys.change(key, [&] { key.set_attributes(attributes); });
  receive({End::sge(kTo, 200)});
  send_one();
  EXPECT_EQ(received().status, WorkStatus::kLocalProtection);
}

// IBTA 9.9.3
TEST_F(DatagramFast, IsDroppedIfItIsLongerThanItsReceive) {
  receive({End::sge(kTo, kGrh + 63)});
  send_one();
  EXPECT_TRUE(pair_.b.hca.receives.empty());
  EXPECT_EQ(pair_.b.counters.resp_local_length_error, 1u);
  EXPECT_EQ(pair_.qb->state(), QpState::kRts);
}

}  // namespace
}  // namespace softhca::rdma::test
