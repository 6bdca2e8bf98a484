// Late answers: they arrive while retransmitted frames still wait in the fabric. The oldest request
// may then be acknowledged and yet incomplete, because frames refer to its payload (IBTA 10.8.5).
// The contents of such an answer apply to the requests behind it (IBTA 9.7.5, 9.7.6).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;
using wire::Operation;

class LateAnswers : public ::testing::Test {
 protected:
  void connect(std::uint32_t path_mtu = 1024) {
    pair.adjust = [path_mtu](QpAttributes& attributes) {
      attributes.ack_timeout = 8;  // 1.05 ms
      attributes.path_mtu = path_mtu;
    };
    pair.connect();
    pair.a.fill(0, 0x40000, 1);
    pair.b.fill(0x40000, 0x40000, 2);
    // Holds the peer's answers back, for the test to deliver.
    pair.b.on_transmit = [this](End&, const wire::Frame& frame) {
      answers.emplace_back(frame.size());
      frame.copy_to(answers.back());
    };
  }
  /// Sends everything twice without an answer; the second frames wait in the fabric.
  void send_twice() {
    pair.drive_for(1ms);
    pair.now += 1ms;
    pair.a.run(pair.now);
    ASSERT_NE(pair.a.waiting, 0u);
    ASSERT_NE(pair.a.counters.retransmitted_packets, 0u);
    retransmitted = pair.a.counters.retransmitted_packets;
  }
  void give(const std::vector<std::byte>& answer) {
    pair.a.transport.handle_frame(wire::Frame::from_bytes(answer), pair.now);
  }
  /// Delivers an answer that the peer has not sent, with `opcode` and `psn`.
  void forge(wire::Opcode opcode, std::uint32_t psn, wire::Aeth aeth, std::uint32_t payload = 0) {
    const auto parsed = wire::IbPacket::parse(wire::Frame::from_bytes(answers.at(0)));
    ASSERT_TRUE(parsed);
    auto bth = parsed->bth;
    bth.opcode = opcode;
    bth.psn = wire::Psn(psn);
    wire::ExtHeaders ext;
    ext.aeth = aeth;
    const std::vector<std::byte> data(payload, std::byte{0xEE});
    wire::Frame frame;
    wire::IbHeader(parsed->address).emit(bth, ext, payload, frame);
    (void)frame.add_segment(data);
    pair.a.transport.handle_frame(frame, pair.now);
  }
  static wire::Aeth nak(wire::NakCode code) {
    return {wire::AethType::NAK, static_cast<std::uint8_t>(code), wire::Msn(0)};
  }
  /// Runs the rest without interference.
  void finish() {
    pair.b.on_transmit = pair.a.on_transmit;
    pair.drive_for(20ms);
  }

  static constexpr std::uint32_t kFirst = 0xFFFFF0;  ///< PSN of a's first packet

  Pair pair;
  std::vector<std::vector<std::byte>> answers;
  std::uint64_t retransmitted = 0;
};

TEST_F(LateAnswers, AReadResponseMayComeBeforeTheWriteInFrontOfItIsReleased) {
  connect();
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, read(0x30000, 0x40000, 3000));
  send_twice();
  // Deliver only the READ's answer: it also acknowledges the WRITE.
  const auto first = std::ranges::find_if(answers, [](const auto& bytes) {
    const auto packet = wire::IbPacket::parse(wire::Frame::from_bytes(bytes));
    return packet && packet->info().operation == Operation::kRdmaReadResponse;
  });
  ASSERT_NE(first, answers.end());
  for (auto answer = first; answer != first + 3; ++answer) give(*answer);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.qa->state(), QpState::kRts);
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0x30000), pair.b.at(0x40000), 3000), 0);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, retransmitted);
}

TEST_F(LateAnswers, AnAtomicsAnswerMayComeBeforeTheWriteInFrontOfItIsReleased) {
  connect();
  pair.b.store64(0x50000, 7);
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, fetch_add(0x30000, 0x50000, 5));
  send_twice();
  give(answers.back());
  EXPECT_EQ(pair.qa->state(), QpState::kRts);
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(pair.a.load64(0x30000), 7u);
}

TEST_F(LateAnswers, AFencedRequestFollowsAnAtomicThatIsReleasedLate) {
  connect();
  pair.b.store64(0x50000, 7);
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, fetch_add(0x30000, 0x50000, 5));
  send_twice();
  auto fenced = write(0, 0x21000, 100);
  fenced.fence = true;
  pair.a.post(*pair.qa, fenced);
  give(answers.back());
  pair.a.run(pair.now);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
}

TEST_F(LateAnswers, ARefusalIsThatOfTheRequestItNames) {
  connect();
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  auto bad = write(0, 0x20000, 100);
  bad.rkey = MKey(0x999900);
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  send_twice();
  give(answers.back());
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kRemoteAccess, kFlushed));
  EXPECT_EQ(pair.a.hca.sends[1].reason, Reason::kNakRemoteAccess);
}

TEST_F(LateAnswers, RetriesThatAreUsedUpFailTheRequestWithoutAnAnswer) {
  connect();
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, write(0, 0x20000, 3000));
  send_twice();
  for (int i = 0; i < 9; ++i) {
    forge(wire::Opcode::RC_ACKNOWLEDGE, kFirst + 1, nak(wire::NakCode::PSN_SEQUENCE_ERROR));
  }
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kTransportRetryExceeded));
}

TEST_F(LateAnswers, TheRnrRetriesThatAreUsedUpAreThoseOfTheRequestWithoutAReceive) {
  connect();
  auto attributes = pair.qa->attributes();
  attributes.rnr_retry = 0;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  send_twice();
  forge(wire::Opcode::RC_ACKNOWLEDGE, kFirst + 1, {wire::AethType::RNR_NAK, 1, wire::Msn(0)});
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kRnrRetryExceeded));
}

/// Sends M1, in four packets, and M2 behind it. The peer requests M2 again when M1 is done.
class Rewinding : public LateAnswers, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Inline, Rewinding, ::testing::Bool());

TEST_P(Rewinding, GoesBackToTheRequestThatIsAskedForAndNeverBeyondTheEndOfOne) {
  const bool is_inline = GetParam();
  const auto length = is_inline ? 900u : 1024u;
  connect(256);
  auto first = write(0, 0x20000, length);
  if (is_inline) {
    first.is_inline = true;
    first.inline_data.assign(std::span(pair.a.at(0), length));
  }
  pair.a.post(*pair.qa, first);
  pair.a.post(*pair.qa, write(0x1000, 0x21000, 100));
  send_twice();
  pair.carry();
  retransmitted = pair.a.counters.retransmitted_packets;
  answers.resize(1);
  // Everything is retransmitted, and while those frames wait, the peer requests a repeat from M2
  // on.
  pair.now += 2ms;
  pair.a.run(pair.now);
  ASSERT_NE(pair.a.waiting, 0u);
  pair.keep_sent = true;
  forge(wire::Opcode::RC_ACKNOWLEDGE, kFirst + 4, nak(wire::NakCode::PSN_SEQUENCE_ERROR));
  pair.a.run(pair.now);
  pair.a.run(pair.now);
  pair.carry();
  ASSERT_EQ(pair.sent.size(), 6u) << "five packets, and M2 again";
  EXPECT_EQ(pair.sent.back().packet.bth.opcode, wire::Opcode::RC_RDMA_WRITE_ONLY);
  EXPECT_EQ(pair.sent.back().packet.bth.psn.value(), (kFirst + 4) & wire::Psn::kMask);
  EXPECT_EQ(pair.sent.back().packet.payload_size, 100u);
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), length), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x1000), pair.b.at(0x21000), 100), 0);
}

TEST_F(LateAnswers, AReadThatIsAnsweredAlreadyIsNotAskedForByALaterAcknowledgement) {
  connect();
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, read(0x30000, 0x40000, 1000));
  pair.a.post(*pair.qa, write(0x1000, 0x21000, 100));
  send_twice();
  forge(wire::Opcode::RC_RDMA_READ_RESPONSE_ONLY, kFirst + 1, wire::Aeth::ack(wire::Msn(2)), 1000);
  forge(wire::Opcode::RC_ACKNOWLEDGE, kFirst + 2, wire::Aeth::ack(wire::Msn(3)));
  EXPECT_EQ(pair.a.counters.implied_nak_seq_err, 0u);
  pair.carry();
  pair.a.run(pair.now);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  EXPECT_EQ(pair.a.counters.retransmitted_packets, retransmitted);
}

TEST_F(LateAnswers, AcknowledgedRequestsSucceedThoughTheQpGoesToError) {
  connect();
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, read(0x30000, 0x40000, 1000));
  pair.a.post(*pair.qa, write(0x1000, 0x21000, 100));
  send_twice();
  forge(wire::Opcode::RC_RDMA_READ_RESPONSE_ONLY, kFirst + 1, wire::Aeth::ack(wire::Msn(2)), 1000);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kError, {}));
  pair.a.run(pair.now);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  pair.carry();
  pair.a.run(pair.now);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kFlushed));
}

TEST_F(LateAnswers, LaterRequestsThatWereExecutedAreFlushed) {
  connect();
  SendRequest nop;
  nop.cookie = 77;
  nop.signaled = true;
  auto bad = write(0, 0x20000, 100);
  bad.rkey = MKey(0x999900);
  pair.a.post(*pair.qa, write(0, 0x20000, 100));
  pair.a.post(*pair.qa, nop);
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, nop);
  send_twice();
  give(answers.back());
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kRemoteAccess, kFlushed));
}

TEST_F(LateAnswers, AnAnswerCountsBeforeTheNewsThatAPageCannotBeBrought) {
  connect();
  auto attributes = pair.a.keys.find(kKey)->attributes();
  attributes.key = MKey(0x7700);
  attributes.pages.clear();
  attributes.form = KeyForm::kPages;
  attributes.reloadable = true;
  attributes.log_page_size = 12;
  attributes.length = 4096;
  auto& key = pair.a.keys.insert(std::make_unique<MemoryKey>(attributes));
  const auto load = [&](std::uint8_t access) {
    pair.a.keys.change(key, [&] {
      key.load_page(0, {kMemoryIova, access});
      key.refresh();
    });
  };
  load(kLocalRead);
  auto paged = write(0, 0x21000, 100);
  paged.sges[0].lkey = attributes.key;
  pair.a.post(*pair.qa, write(0x1000, 0x20000, 100));
  pair.a.post(*pair.qa, paged);
  pair.drive_for(1ms);
  load(0);
  pair.now += 1ms;
  pair.a.run(pair.now);
  ASSERT_EQ(pair.a.hca.faults.size(), 1u);
  ASSERT_NE(pair.a.waiting, 0u) << "the first request is not released";
  give(answers.back());
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, true);
  finish();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
}

}  // namespace
}  // namespace softhca::rdma::test
