// RC on a wire that loses, delays and duplicates packets: retries, timers, duplicates.
// rc_soak_test.cc has the soak test with random seeds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using enum WorkStatus;
using wire::Operation;

class RcLoss : public ::testing::Test {
 protected:
  RcLoss() {
    pair.adjust = [](QpAttributes& attributes) { attributes.ack_timeout = 8; };  // 1.05 ms
    pair.connect();
    pair.a.fill(0, 0x40000, 1);
    pair.b.fill(0, 0x40000, 2);
  }
  /// Applies `fate` to packet `n`, counted from 0, of those that `match` accepts.
  template <class Match>
  void nth(unsigned n, Fate fate, Match match) {
    pair.script = [this, n, fate, match](const wire::IbPacket& packet, bool to_b) {
      if (!match(packet, to_b)) return Fate::kDeliver;
      return matched_++ == n ? fate : Fate::kDeliver;
    };
  }
  static bool is_request(const wire::IbPacket&, bool to_b) { return to_b; }
  static bool is_answer(const wire::IbPacket&, bool to_b) { return !to_b; }

  Pair pair;
  unsigned matched_ = 0;
};

TEST_F(RcLoss, LostPacketIsSentAgainAfterOneSequenceNak) {
  unsigned naks = 0;
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    if (to_b) return matched_++ == 3 ? Fate::kLose : Fate::kDeliver;
    naks += packet.ext.aeth.type == wire::AethType::NAK;
    return Fate::kDeliver;
  };
  pair.a.post(*pair.qa, write(0, 0x20000, 20000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 20000), 0);
  EXPECT_EQ(naks, 1u);
  EXPECT_EQ(pair.a.counters.packet_seq_err, 1u);
  EXPECT_GT(pair.b.counters.out_of_sequence, 1u);
  EXPECT_LT(pair.now.time_since_epoch(), 1ms) << "it should not have waited for the timer";
}

TEST_F(RcLoss, LostLastPacketIsSentAgainAfterTheAckTimeout) {
  nth(0, Fate::kLose, [](const auto& packet, bool to_b) { return to_b && packet.info().last; });
  pair.a.post(*pair.qa, write(0, 0x20000, 2000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 1u);
  EXPECT_GE(pair.now.time_since_epoch(), 4096ns * 256);
  EXPECT_LT(pair.now.time_since_epoch(), 4096ns * 256 * 2 + 1ms);
}

TEST(RcTimeout, IsNoShorterThanThePortsShortest) {
  for (const auto& [code, shortest, waits] :
       {std::tuple{std::uint8_t{8}, 20ms, util::Duration(20ms)},
        std::tuple{std::uint8_t{14}, 20ms, util::Duration(4096ns * (1 << 14))}}) {
    Pair pair({.ack_timeout_min = shortest});
    pair.adjust = [asked = code](QpAttributes& attributes) { attributes.ack_timeout = asked; };
    pair.connect();
    bool lost = false;
    pair.script = [&lost](const wire::IbPacket& packet, bool to_b) {
      const bool last = to_b && packet.info().last;
      return last && !std::exchange(lost, true) ? Fate::kLose : Fate::kDeliver;
    };
    pair.a.post(*pair.qa, write(0, 0x20000, 2000));
    pair.drive();
    EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
    EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 1u);
    EXPECT_GE(pair.now.time_since_epoch(), waits);
    EXPECT_LT(pair.now.time_since_epoch(), waits + 1ms);
  }
}

TEST_F(RcLoss, APatientQpCountsSeveralTimeoutsAsOne) {
  nth(0, Fate::kLose, [](const auto& packet, bool to_b) { return to_b && packet.info().last; });
  pair.a.transport.set_ack_patience(3);
  pair.a.post(*pair.qa, write(0, 0x20000, 2000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 1u);
  EXPECT_GE(pair.now.time_since_epoch(), 3 * 4096ns * 256);
  EXPECT_LT(pair.now.time_since_epoch(), 4 * 4096ns * 256 + 1ms);
}

TEST_F(RcLoss, AQpThatIsNoLongerPatientWaitsForNoFurtherTimeout) {
  nth(0, Fate::kLose, [](const auto& packet, bool to_b) { return to_b && packet.info().last; });
  pair.a.transport.set_ack_patience(1000);
  pair.a.post(*pair.qa, write(0, 0x20000, 2000));
  pair.drive_for(5 * 4096ns * 256);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
  pair.a.transport.set_ack_patience(1);
  pair.drive_for(2 * 4096ns * 256);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 1u);
}

TEST_F(RcLoss, LostAcknowledgementIsRepeatedForTheDuplicate) {
  nth(0, Fate::kLose, is_answer);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 2000)});
  pair.a.post(*pair.qa, send(0, 2000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess)) << "delivered twice";
  EXPECT_GT(pair.b.counters.duplicate_request, 0u);
}

TEST_F(RcLoss, LaterAcknowledgementStandsForALostOne) {
  nth(0, Fate::kLose, is_answer);
  pair.a.post(*pair.qa, write(0, 0x20000, 8));
  pair.drive_for(10us);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  pair.a.post(*pair.qa, write(0, 0x20000, 8));
  pair.drive_for(10us);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
}

TEST_F(RcLoss, RetriesAreUsedUpThenTheRequestFails) {
  auto attributes = pair.qa->attributes();
  attributes.retry_count = 3;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  pair.script = [&](const wire::IbPacket&, bool to_b) {
    matched_ += to_b;
    return Fate::kLose;
  };
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post_receive(*pair.qa, {});
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded, kFlushed));
  EXPECT_THAT(pair.a.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(matched_, 2u * 4);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 4u);
  EXPECT_EQ(pair.now.time_since_epoch(), 4096ns * 256 * 4);
}

TEST_F(RcLoss, AckTimeoutOfZeroNeverExpires) {
  auto attributes = pair.qa->attributes();
  attributes.ack_timeout = 0;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  nth(0, Fate::kLose, is_request);
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();  // no timer is pending
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.qa->state(), QpState::kRts);
}

TEST_F(RcLoss, EveryPacketLostOnceStillArrives) {
  for (unsigned n = 0; n < 24; ++n) {
    Pair fresh;
    fresh.adjust = pair.adjust;
    fresh.connect();
    fresh.a.fill(0, 0x8000, n);
    unsigned seen = 0;
    fresh.script = [&](const wire::IbPacket&, bool) {
      return seen++ == n ? Fate::kLose : Fate::kDeliver;
    };
    fresh.a.post(*fresh.qa, write(0, 0x20000, 4000));
    fresh.a.post(*fresh.qa, read(0x10000, 0x20000, 4000));
    fresh.a.post(*fresh.qa, fetch_add(0x30000, 0x30000, 1));
    fresh.a.post(*fresh.qa, write(0, 0x28000, 100));
    fresh.drive();
    EXPECT_EQ(fresh.a.hca.send_statuses(), std::vector(4, kSuccess)) << "packet " << n;
    EXPECT_EQ(std::memcmp(fresh.a.at(0), fresh.b.at(0x20000), 4000), 0) << "packet " << n;
    EXPECT_EQ(fresh.b.load64(0x30000), 1u) << "packet " << n;
  }
}

// READ -------------------------------------------------------------------------------------------

TEST_F(RcLoss, LostReadResponseIsAskedForAgainFromWhereItIsMissing) {
  nth(5, Fate::kLose, is_answer);
  pair.keep_sent = true;
  pair.a.post(*pair.qa, read(0, 0x20000, 20000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 20000), 0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> asked;
  for (const auto& sent : pair.sent) {
    if (sent.to_b) asked.push_back({sent.packet.bth.psn.value(), sent.packet.ext.reth.dma_length});
  }
  EXPECT_THAT(asked,
              ElementsAre(std::pair(0xFFFFF0u, 20000u), std::pair(0xFFFFF5u, 20000u - 5 * 1024)));
  EXPECT_EQ(pair.a.counters.implied_nak_seq_err, 1u);
}

TEST_F(RcLoss, LostReadRequestIsFoundByTheAnswerToALaterRequest) {
  nth(0, Fate::kLose, is_request);
  pair.a.post(*pair.qa, read(0, 0x20000, 2000));
  pair.a.post(*pair.qa, write(0x3000, 0x3000, 8));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_LT(pair.now.time_since_epoch(), 1ms);
}

TEST_F(RcLoss, LostWholeAnswerOfAReadIsAnImpliedNakOfTheNextAcknowledgement) {
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    return !to_b && packet.info().operation == Operation::kRdmaReadResponse && matched_++ == 0
               ? Fate::kLose
               : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, read(0, 0x20000, 100));
  pair.a.post(*pair.qa, write(0x3000, 0x3000, 8));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(pair.a.counters.implied_nak_seq_err, 1u);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 100), 0);
}

// Atomics ----------------------------------------------------------------------------------------

TEST_F(RcLoss, AtomicIsCarriedOutOnceAndItsDuplicateGetsTheSameAnswer) {
  nth(0, Fate::kLose, is_answer);
  pair.b.store64(64, 100);
  pair.a.post(*pair.qa, fetch_add(8, 64, 1));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.a.load64(8), 100u);
  EXPECT_EQ(pair.b.load64(64), 101u);
  EXPECT_EQ(pair.b.counters.duplicate_request, 1u);
}

TEST_F(RcLoss, DoubledAtomicsAreCarriedOutOnce) {
  pair.options.duplicate = 1;
  pair.b.store64(64, 0);
  for (int i = 0; i < 50; ++i) pair.a.post(*pair.qa, fetch_add(0x1000 + 8 * i, 64, 1));
  pair.drive();
  EXPECT_EQ(pair.b.load64(64), 50u);
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(pair.a.load64(0x1000 + 8 * i), i);
}

// Receiver not ready -----------------------------------------------------------------------------

TEST_F(RcLoss, SendWaitsForTheTimeOfTheRnrNak) {
  pair.a.post(*pair.qa, send(0, 2000));
  pair.drive_for(100us);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.b.counters.rnr_naks_sent, 1u);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 2000)});
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  // Timer code 12 is 0.64 ms.
  EXPECT_GE(pair.now.time_since_epoch(), 640us);
  EXPECT_LT(pair.now.time_since_epoch(), 660us);
  EXPECT_EQ(pair.a.counters.rnr_naks_received, 1u);
  EXPECT_GT(pair.b.counters.out_of_buffer, 0u);
}

TEST_F(RcLoss, APacketThatIsLostAfterAnRnrNakIsSentAgainAfterTheAckTimeout) {
  unsigned tries = 0;
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    const bool first = to_b && packet.info().first;
    return first && ++tries == 2 ? Fate::kLose : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, send(0, 5000));
  pair.drive_for(100us);
  EXPECT_EQ(pair.b.counters.rnr_naks_sent, 1u);
  EXPECT_EQ(pair.b.counters.out_of_sequence, 4u);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 5000)});
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  // IBTA 9.7.5.2.8: the peer does not answer packets after the refused one.
  EXPECT_EQ(pair.a.counters.packet_seq_err, 0u);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 1u);
}

TEST_F(RcLoss, RnrRetriesAreUsedUpThenTheRequestFails) {
  auto attributes = pair.qa->attributes();
  attributes.rnr_retry = 2;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  pair.a.post(*pair.qa, send(0, 10));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRnrRetryExceeded));
  EXPECT_EQ(pair.a.counters.rnr_retries_exceeded, 1u);
  EXPECT_EQ(pair.a.counters.rnr_naks_received, 3u);
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
}

TEST_F(RcLoss, RnrRetryOfSevenNeverEnds) {
  pair.a.post(*pair.qa, send(0, 10));
  pair.drive_for(100ms);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_GT(pair.b.counters.rnr_naks_sent, 100u);
  EXPECT_EQ(pair.qa->state(), QpState::kRts);
}

TEST_F(RcLoss, WriteWithImmediateWithoutReceiveIsNotReady) {
  auto request = write(0, 0x20000, 3000);
  request.opcode = SendOpcode::kRdmaWriteWithImmediate;
  pair.a.post(*pair.qa, request);
  pair.drive_for(100us);
  EXPECT_EQ(pair.b.counters.rnr_naks_sent, 1u);
  pair.b.post_receive(*pair.qb, {});
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.b.hca.receives.at(0).completion.byte_count, 3000u);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 3000), 0);
}

TEST_F(RcLoss, ARefusedRequestFailsAlsoIfWhatCameBeforeItWasAboutToBeSentAgain) {
  std::vector<std::vector<std::byte>> answers;
  pair.b.on_transmit = [&, through = pair.b.on_transmit](End& from, const wire::Frame& frame) {
    answers.emplace_back(frame.size());
    frame.copy_to(answers.back());
    if (answers.size() == 1) through(from, frame);
  };
  nth(1, Fate::kLose, is_request);
  pair.a.post(*pair.qa, write(0, 0x20000, 3000));
  auto bad = write(0, 0, 8);
  bad.sges[0].lkey = MKey(0x999900);
  pair.a.post(*pair.qa, bad);
  pair.drive_for(100us);
  ASSERT_EQ(answers.size(), 2u) << "a NAK, and an acknowledgement that is on its way";
  pair.a.transport.handle_frame(wire::Frame::from_bytes(answers[0]), pair.now);
  pair.a.transport.handle_frame(wire::Frame::from_bytes(answers[1]), pair.now);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kLocalProtection));
}

// The response of a READ acknowledges all earlier requests (IBTA 9.7.5.1). These do not depend on
// it: the last packet of each message requests its own acknowledgement.
TEST_F(RcLoss, RequestsBeforeALostReadAreAcknowledgedThemselves) {
  pair.script = [](const wire::IbPacket& packet, bool) {
    return packet.info().operation == Operation::kRdmaReadRequest ? Fate::kLose : Fate::kDeliver;
  };
  pair.keep_sent = true;
  for (const std::uint32_t length : {0u, 8u, 5000u}) pair.a.post(*pair.qa, write(0, 0, length));
  pair.a.post(*pair.qa, read(0x8000, 0, 8));
  pair.drive_for(100us);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  // This responder acknowledges at the end of its turn in any case; others wait for AckReq.
  std::vector<bool> asks;
  for (const auto& [packet, to_b] : pair.sent) {
    const auto& info = packet.info();
    if (to_b && info.operation == Operation::kRdmaWrite && info.last) {
      asks.push_back(packet.bth.ack_req);
    }
  }
  EXPECT_THAT(asks, ElementsAre(true, true, true)) << "the last packet of each message";
  pair.script = nullptr;
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess, kSuccess));
}

// States -----------------------------------------------------------------------------------------

/// Requests of a that a test delivers itself, to a responder that expects more to follow. No timer
/// repeats what is lost.
class RcCopies : public RcLoss {
 protected:
  RcCopies() {
    auto attributes = pair.qa->attributes();
    attributes.ack_timeout = 0;
    Pair::change_drained(pair.a, *pair.qa, attributes);
    pair.b.queued = 2;
    pair.a.on_transmit = [this](End&, const wire::Frame& frame) {
      requests.push_back(frame);
      requests.back().own_segments();
    };
  }
  void post(const SendRequest& request) {
    pair.a.post(*pair.qa, request);
    pair.a.run(pair.now);
  }
  void deliver(std::size_t number) {
    ASSERT_LT(number, requests.size());
    EXPECT_TRUE(pair.b.transport.handle_frame(requests[number], pair.now));
  }

  std::vector<wire::Frame> requests;
};

// IBTA 9.7.5.1: the response to a copy has the PSN of the first one, and acknowledges nothing new.
TEST_F(RcCopies, ALateCopyOfAReadLeavesTheAcknowledgementThatIsDue) {
  post(read(0x10000, 0x20000, 64));
  deliver(0);
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.size(), 1u);
  post(write(0, 0x30000, 64));
  deliver(1);
  deliver(0);
  EXPECT_EQ(pair.b.counters.duplicate_request, 1u);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
}

// The peer went back: it requests the second READ and the WRITE again.
TEST_F(RcCopies, AnAcknowledgementGoesWithTheResponsesThatACopyDrops) {
  post(read(0x10000, 0x20000, 64));
  deliver(0);
  pair.drive();
  post(read(0x10000, 0x20000, 4000));
  post(write(0, 0x30000, 64));
  deliver(1);
  deliver(2);
  deliver(0);
  const auto sent = pair.b.transmitted;
  pair.drive();
  EXPECT_EQ(pair.b.transmitted, sent + 1) << "the response to the copy";
  EXPECT_EQ(pair.a.counters.implied_nak_seq_err, 0u);
  deliver(1);
  deliver(2);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
}

TEST_F(RcLoss, SqDrainFinishesWhatWasBegunAndStartsNothing) {
  pair.a.post(*pair.qa, write(0, 0, 40000));
  pair.a.run(pair.now, 8);  // sent in part
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kSqDrain, pair.qa->attributes()));
  EXPECT_FALSE(pair.qa->drained());
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_TRUE(pair.qa->drained());
  EXPECT_EQ(pair.a.hca.count(QpEvent::kSqDrained), 1u);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, pair.qa->attributes()));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
}

TEST_F(RcLoss, SqDrainRetransmitsWhatIsLost) {
  nth(0, Fate::kLose, is_request);
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.run(pair.now);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kSqDrain, pair.qa->attributes()));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.a.hca.count(QpEvent::kSqDrained), 1u);
}

TEST_F(RcLoss, PacketsForAQpInResetOrInitAreDroppedSilently) {
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kReset, {}));
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive_for(10us);
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kInit,
                                      pair.attributes_for(pair.b, pair.a, Qpn(0x11))));
  pair.b.post_receive(*pair.qb, {});
  pair.drive_for(2ms);
  EXPECT_GE(pair.b.transport.counters().dropped_for(Drop::kQpState), 2u);
  EXPECT_EQ(pair.b.transport.counters().tx_packets, 0u);
  EXPECT_TRUE(pair.b.hca.receives.empty());
}

TEST_F(RcLoss, FirstPacketInRtrEstablishesCommunication) {
  const auto attributes = pair.attributes_for(pair.b, pair.a, Qpn(0x11));
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kReset, {}));
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kInit, attributes));
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kRtr, attributes));
  pair.b.post(*pair.qb, write(0, 0, 8));  // not sent before RTS
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post(*pair.qa, read(0, 0, 8));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(pair.b.hca.count(QpEvent::kCommunicationEstablished), 1u);
  EXPECT_TRUE(pair.b.hca.sends.empty());
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kRts, attributes));
  pair.drive();
  EXPECT_THAT(pair.b.hca.send_statuses(), ElementsAre(kSuccess));
}

TEST_F(RcLoss, DamagedPacketIsDroppedByItsIcrc) {
  bool damaged = false;
  pair.a.on_transmit = [&, through = pair.a.on_transmit](End& from, const wire::Frame& frame) {
    if (damaged) return through(from, frame);
    damaged = true;
    std::vector<std::byte> bytes(frame.size());
    frame.copy_to(bytes);
    bytes[60] ^= std::byte{1};
    pair.b.transport.handle_frame(wire::Frame::from_bytes(bytes), pair.now);
  };
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kIcrc), 1u);
}

TEST_F(RcLoss, PacketFromAnotherHostIsDropped) {
  pair.keep_sent = true;
  End stranger(3);
  QpAttributes attributes = pair.qa->attributes();
  auto& qp = stranger.create_qp(Qpn(0x11), QpType::kRc, attributes, {});
  stranger.on_transmit = [&](End&, const wire::Frame& frame) {
    EXPECT_TRUE(pair.b.transport.handle_frame(frame, pair.now));
  };
  Pair::to_rts(stranger, qp, attributes);
  stranger.post(qp, write(0, 0x20000, 100));
  stranger.run(pair.now);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kSource), 1u);
}

TEST_F(RcLoss, FramesForOthersAreNotTaken) {
  std::vector<bool> taken;
  End other(3);
  auto attributes = pair.qa->attributes();
  auto& qp = other.create_qp(Qpn(0x11), QpType::kRc, attributes, {});
  other.on_transmit = [&](End&, const wire::Frame& frame) {
    taken.push_back(pair.b.transport.handle_frame(frame, pair.now));
  };
  const auto to = [&](const std::function<void(QpAttributes&)>& change) {
    auto changed = attributes;
    change(changed);
    ASSERT_TRUE(other.transport.modify(qp, QpState::kReset, {}));
    Pair::to_rts(other, qp, changed);
    other.post(qp, write(0, 0, 8));
    other.run(pair.now);
    ASSERT_TRUE(other.transport.modify(qp, QpState::kReset, {}));
  };
  to([](auto& x) { x.path.dst_gid = Gid::from_ipv4(0x0A000009); });     // not the receiver's GID
  to([](auto& x) { x.path.dst_mac = Mac::from_u64(0x020000000009); });  // not its MAC
  EXPECT_THAT(taken, ElementsAre(false, false));
}

}  // namespace
}  // namespace softhca::rdma::test
