// Missing pages and RC: the side that faults waits, and continues when the device resumes it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/page_faults.h"
#include "rdma/requester.h"
#include "rdma/responder.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

INSTANTIATE_TEST_SUITE_P(Trains, PageFaults, ::testing::Bool());

// Responder of RC --------------------------------------------------------------------------------

TEST_P(PageFaults, AWriteIsNotReadyUntilItsPageHasCome) {
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x2100, 300)));
  pair.drive_for(3ms);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u) << "one event, however often the peer asks";
  const auto& fault = pair.b.hca.faults[0];
  EXPECT_EQ(fault.kind, PageFaultKind::kRemoteWrite);
  EXPECT_EQ(fault.rkey, kPaged);
  EXPECT_EQ(fault.address, kKeyStart + 0x2100);
  EXPECT_EQ(fault.length, 300u);
  EXPECT_EQ(fault.committed, 0u);
  EXPECT_EQ(fault.packet_length, 300u);
  EXPECT_GT(pair.b.counters.rnr_naks_sent, 1u);
  bring(pair.b, 2, 1);
  pair.drive_for(1ms);
  EXPECT_TRUE(pair.a.hca.sends.empty()) << "the driver has not said that it may go on";
  EXPECT_TRUE(pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false));
  EXPECT_FALSE(pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false));
  pair.drive();
  expect_done();
  expect_same(0x40000, 0x2100, 300);
  EXPECT_EQ(pair.b.counters.rx_write_requests, 1u);
  EXPECT_EQ(pair.b.hca.faults.size(), 1u);
}

// Acknowledging a late copy of a request does not end the wait. The copy has the headers of all
// others, so that what follows it may take the fast path.
TEST_P(PageFaults, AWriteStillWaitsAfterADuplicateWasAcknowledged) {
  pair.options.lateness = 400us;  // a copy arrives after half of it
  bool doubled = false;
  pair.script = [&](const wire::IbPacket&, bool to_b) {
    return to_b && !std::exchange(doubled, true) ? Fate::kDouble : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, write(0x40000, 0x200000, 8));
  pair.drive_for(10us);
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x2100, 300)));
  pair.drive_for(100us);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  EXPECT_EQ(pair.b.counters.duplicate_request, 0u);
  bring(pair.b, 2, 1);
  pair.drive_for(3ms);
  EXPECT_EQ(pair.b.counters.duplicate_request, 1u);
  EXPECT_EQ(pair.a.hca.sends.size(), 1u) << "the driver has not said that it may go on";
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done(2);
  expect_same(0x40000, 0x2100, 300);
}

TEST_P(PageFaults, AWriteGoesOnInItsMidst) {
  bring_all(pair.b);
  take_away(pair.b, 5);
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x1800, 0x8000)));
  pair.drive_for(3ms);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  const auto& fault = pair.b.hca.faults[0];
  EXPECT_EQ(fault.address, kKeyStart + 0x1800);
  EXPECT_EQ(fault.length, 0x8000u);
  EXPECT_EQ(fault.committed, 0x5000u - 0x1800u);
  bring(pair.b, 5, 1);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done();
  expect_same(0x40000, 0x1800, 0x8000);
}

TEST_P(PageFaults, APageThatOnlyMayBeReadIsAwayForAWrite) {
  set(pair.b, 2, kLocalRead | kRemoteRead);
  pair.a.post(*pair.qa, to_paged(read(0x40000, 0x2000, 8)));
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x2000, 8)));
  pair.drive_for(3ms);
  EXPECT_EQ(pair.a.hca.sends.size(), 1u);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  bring(pair.b, 2, 1);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done(2);
}

TEST_P(PageFaults, AReadIsNotReadyUntilItsPagesHaveCome) {
  bring(pair.b, 0, 2);
  pair.a.post(*pair.qa, to_paged(read(0x40000, 0x800, 0x4000)));
  pair.drive_for(3ms);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  EXPECT_EQ(pair.b.hca.faults[0].kind, PageFaultKind::kRemoteRead);
  EXPECT_EQ(pair.b.hca.faults[0].address, kKeyStart + 0x800);
  EXPECT_EQ(pair.b.hca.faults[0].length, 0x4000u);
  bring_all(pair.b);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done();
  expect_same(0x40000, 0x800, 0x4000);
}

TEST_P(PageFaults, AnswersWaitForAPageThatHasGoneMeanwhile) {
  bring_all(pair.b);
  with_first_packet(false, [this] { take_away(pair.b, 0x9F); });
  pair.a.post(*pair.qa, to_paged(read(0x200000, 0, 0xA0000)));
  pair.a.post(*pair.qa, write(0x150000, 0x150000, 8));
  pair.drive_for(3ms);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  const auto& fault = pair.b.hca.faults[0];
  EXPECT_EQ(fault.kind, PageFaultKind::kRemoteRead);
  EXPECT_EQ(fault.address, kKeyStart + 0x9F000);
  EXPECT_EQ(fault.length, 0x1000u);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  bring_all(pair.b);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done(2);
  expect_same(0x200000, 0, 0xA0000);
  EXPECT_EQ(pair.b.hca.count(QpEvent::kAccessError), 0u);
}

// The check of the request inspects only the first pages of so long a READ.
TEST_P(PageFaults, ALongReadWaitsForAPageFarBehindItsStart) {
  constexpr MKey kLong{0x7800};
  constexpr std::size_t kLongPages = 600, kAbsent = 500;
  auto attributes = pair.b.keys.find(kPaged)->attributes();
  attributes.key = kLong;
  attributes.length = kLongPages * kPage;
  auto made = std::make_unique<MemoryKey>(attributes);
  // Neighbors change places, so that no two pages are contiguous on the bus.
  const auto load = [](MemoryKey& key, std::size_t i) {
    key.load_page(i, {.address = kMemoryIova + (i ^ 1) * kPage, .access = kEveryAccess});
  };
  for (std::size_t i = 0; i != kLongPages; ++i) {
    if (i != kAbsent) load(*made, i);
  }
  made->refresh();
  auto& key = pair.b.keys.insert(std::move(made));
  auto request = read(0, 0, kLongPages * kPage);
  request.rkey = kLong;
  pair.a.post(*pair.qa, request);
  pair.drive_for(20ms);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  EXPECT_EQ(pair.b.hca.faults[0].kind, PageFaultKind::kRemoteRead);
  EXPECT_EQ(pair.b.hca.faults[0].address, kKeyStart + kAbsent * kPage);
  EXPECT_EQ(pair.b.hca.faults[0].length, (kLongPages - kAbsent) * kPage);
  pair.b.keys.change(key, [&] {
    load(key, kAbsent);
    key.refresh();
  });
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done();
  for (std::size_t i = 0; i != kLongPages; ++i) expect_same(i * kPage, (i ^ 1) * kPage, kPage);
}

TEST_P(PageFaults, AnAtomicIsCarriedOutOnceItsPageHasCome) {
  pair.b.store64(0x3000, 40);
  pair.a.post(*pair.qa, to_paged(fetch_add(0x40000, 0x3000, 2)));
  pair.drive_for(3ms);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  EXPECT_EQ(pair.b.hca.faults[0].kind, PageFaultKind::kRemoteWrite);
  EXPECT_EQ(pair.b.hca.faults[0].length, 8u);
  EXPECT_EQ(pair.b.load64(0x3000), 40u);
  bring(pair.b, 3, 1);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done();
  EXPECT_EQ(pair.b.load64(0x3000), 42u);
  EXPECT_EQ(pair.a.load64(0x40000), 40u);
}

TEST_P(PageFaults, AMessageIsPlacedInTheReceiveRequestThatItMetFirst) {
  pair.b.post_receive(*pair.qb, {End::sge(0x40000, 0x1800), End::sge(0x6000, 0x2000, kPaged)}, 77);
  pair.b.post_receive(*pair.qb, {End::sge(0x50000, 0x4000)}, 78);
  pair.a.post(*pair.qa, send(0x10000, 0x3000));
  pair.drive_for(3ms);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  const auto& fault = pair.b.hca.faults[0];
  EXPECT_EQ(fault.kind, PageFaultKind::kReceive);
  EXPECT_EQ(fault.cookie, 77u);
  EXPECT_EQ(fault.committed, 0x1800u / 1024 * 1024);
  bring_all(pair.b);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done();
  ASSERT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(pair.b.hca.receives[0].completion.cookie, 77u);
  EXPECT_EQ(pair.b.hca.receives[0].completion.byte_count, 0x3000u);
  expect_same(0x10000, 0x40000, 0x1800);
  expect_same(0x11800, 0x6000, 0x1800);
}

TEST_P(PageFaults, TheFirstPacketOfAMessageMayMeetThePage) {
  pair.b.post_receive(*pair.qb, {End::sge(0, 0x4000, kPaged)});
  pair.a.post(*pair.qa, send(0x10000, 0x3000));
  pair.drive_for(3ms);
  bring_all(pair.b);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  pair.drive();
  expect_done();
  expect_same(0x10000, 0, 0x3000);
}

TEST_P(PageFaults, APageThatCannotBeBroughtIsARefusal) {
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x2000, 8)));
  pair.drive_for(1ms);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, true);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteAccess));
  EXPECT_EQ(pair.b.hca.count(QpEvent::kAccessError), 1u);
  EXPECT_EQ(pair.qb->state(), QpState::kError);
  EXPECT_EQ(pair.b.hca.open_faults, 0u);
}

TEST_P(PageFaults, AReceiveRequestWhosePageCannotBeBroughtEndsInError) {
  pair.b.post_receive(*pair.qb, {End::sge(0, 0x4000, kPaged)}, 5);
  pair.a.post(*pair.qa, send(0x10000, 0x3000));
  pair.drive_for(1ms);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, true);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteOperation));
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalProtection));
}

// Requester --------------------------------------------------------------------------------------

TEST_P(PageFaults, NothingIsSentUntilThePayloadsPageHasCome) {
  pair.a.post(*pair.qa, write(0x10000, 0x40000, 8));
  pair.a.post(*pair.qa, from_paged(write(0x1800, 0x41000, 0x2000)));
  pair.a.post(*pair.qa, write(0x10000, 0x48000, 8));
  pair.drive_for(500ms);
  EXPECT_EQ(pair.a.hca.sends.size(), 1u) << "what was sent before is acknowledged";
  ASSERT_EQ(pair.a.hca.faults.size(), 1u);
  EXPECT_EQ(pair.a.hca.faults[0].kind, PageFaultKind::kSend);
  EXPECT_EQ(pair.a.hca.faults[0].committed, 0u);
  EXPECT_EQ(pair.qa->state(), QpState::kRts);
  bring_all(pair.a);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, false);
  pair.drive();
  expect_done(3);
  expect_same(0x1800, 0x41000, 0x2000);
}

TEST_P(PageFaults, AMessageGoesOnWhereItsPayloadWentAway) {
  bring_all(pair.a);
  with_first_packet(true, [this] { take_away(pair.a, 0x69); });
  pair.a.post(*pair.qa, from_paged(write(0x8000, 0x200000, 0x80000)));
  pair.drive_for(500ms);
  ASSERT_EQ(pair.a.hca.faults.size(), 1u);
  EXPECT_EQ(pair.a.hca.faults[0].committed, 0x61000u);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u) << "no answer was requested";
  bring_all(pair.a);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, false);
  pair.drive();
  expect_done();
  expect_same(0x8000, 0x200000, 0x80000);
}

TEST_P(PageFaults, AReadIsAskedForWhenItsPlaceHasCome) {
  pair.keep_sent = true;
  pair.a.post(*pair.qa, from_paged(read(0x3000, 0x40000, 0x2000)));
  pair.drive_for(3ms);
  EXPECT_TRUE(pair.sent.empty());
  ASSERT_EQ(pair.a.hca.faults.size(), 1u);
  EXPECT_EQ(pair.a.hca.faults[0].kind, PageFaultKind::kReadOrAtomic);
  bring_all(pair.a);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, false);
  pair.drive();
  expect_done();
  expect_same(0x3000, 0x40000, 0x2000);
}

TEST_P(PageFaults, AReadIsAskedForAgainFromWhereItsPlaceWentAway) {
  bring_all(pair.a);
  unsigned answers = 0;
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    if (!to_b && !packet.info().request && ++answers == 4) take_away(pair.a, 8);
    return Fate::kDeliver;
  };
  pair.a.post(*pair.qa, from_paged(read(0x4000, 0x40000, 0x8000)));
  pair.a.post(*pair.qa, write(0x20000, 0x50000, 8));
  pair.drive_for(500ms);
  ASSERT_EQ(pair.a.hca.faults.size(), 1u);
  EXPECT_EQ(pair.a.hca.faults[0].kind, PageFaultKind::kReadOrAtomic);
  EXPECT_EQ(pair.a.hca.faults[0].committed, 0x4000u);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  bring_all(pair.a);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, false);
  pair.drive();
  expect_done(2);
  expect_same(0x4000, 0x40000, 0x8000);
  EXPECT_EQ(pair.a.counters.implied_nak_seq_err, 0u);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
}

TEST_P(PageFaults, AnAtomicWhoseResultHasNoPlaceIsNotCarriedOutTwice) {
  bring_all(pair.a);
  pair.b.store64(0x40000, 40);
  with_first_packet(true, [this] { take_away(pair.a, 3); });
  pair.a.post(*pair.qa, from_paged(fetch_add(0x3000, 0x40000, 2)));
  pair.drive_for(3ms);
  ASSERT_EQ(pair.a.hca.faults.size(), 1u);
  EXPECT_EQ(pair.b.load64(0x40000), 42u);
  bring_all(pair.a);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, false);
  pair.drive();
  expect_done();
  EXPECT_EQ(pair.b.load64(0x40000), 42u);
  EXPECT_EQ(pair.a.load64(0x3000), 40u);
}

TEST_P(PageFaults, ARequestWhosePageCannotBeBroughtFailsInItsTurn) {
  pair.a.post(*pair.qa, write(0x10000, 0x40000, 8));
  pair.a.post(*pair.qa, from_paged(write(0x1000, 0x41000, 8)));
  pair.a.post(*pair.qa, write(0x10000, 0x42000, 8));
  pair.drive_for(3ms);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, true);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kLocalProtection, kFlushed));
  EXPECT_EQ(pair.a.hca.sends[1].reason, Reason::kPageNotBrought);
}

TEST_P(PageFaults, ThePeersSilenceUsesUpNoRetryWhileAPageIsAway) {
  auto attributes = pair.qa->attributes();
  attributes.ack_timeout = 8;  // 1.05 ms
  Pair::change_drained(pair.a, *pair.qa, attributes);
  bool lose = true;
  pair.script = [&](const wire::IbPacket&, bool to_b) {
    return lose && !to_b ? Fate::kLose : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, write(0x8000, 0x40000, 100));
  pair.a.post(*pair.qa, from_paged(write(0, 0x50000, 100)));
  pair.drive_for(100ms);
  ASSERT_EQ(pair.a.hca.faults.size(), 1u);
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
  lose = false;
  bring_all(pair.a);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, false);
  pair.drive();
  expect_done(2);
}

TEST_P(PageFaults, AReadWhosePlaceCannotBeBroughtFails) {
  bring_all(pair.a);
  with_first_packet(true, [this] { take_away(pair.a, 3); });
  pair.a.post(*pair.qa, from_paged(read(0x3000, 0x40000, 8)));
  pair.drive_for(3ms);
  pair.a.transport.resume(*pair.qa, FaultSide::kRequester, true);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kLocalProtection));
}

// Both -------------------------------------------------------------------------------------------

TEST_P(PageFaults, BothSidesOfBothQpsMayWait) {
  pair.a.post(*pair.qa, of_paged_memory(write(0x1000, 0x2000, 0x2000), true, true));
  pair.b.post(*pair.qb, of_paged_memory(write(0x9000, 0xA000, 0x2000), true, true));
  for (int i = 0; i != 4; ++i) {
    pair.drive_for(3ms);
    for (auto* end : {&pair.a, &pair.b}) {
      bring_all(*end);
      auto& qp = end == &pair.a ? *pair.qa : *pair.qb;
      end->transport.resume(qp, FaultSide::kRequester, false);
      end->transport.resume(qp, FaultSide::kResponder, false);
    }
  }
  pair.drive();
  expect_done();
  EXPECT_THAT(pair.b.hca.send_statuses(), ElementsAre(kSuccess));
}

TEST_P(PageFaults, ADeviceWithoutRoomIsAskedAgain) {
  pair.a.hca.fault_answer = pair.b.hca.fault_answer = FaultAnswer::kBusy;
  pair.a.post(*pair.qa, from_paged(write(0x1000, 0x40000, 8)));
  pair.b.post(*pair.qb, to_paged(write(0x40000, 0x8000, 8)));
  pair.drive_for(20ms);
  EXPECT_GT(pair.a.hca.faults.size(), 3u);
  EXPECT_EQ(pair.a.hca.open_faults, 0u);
  bring_all(pair.a);
  pair.drive();
  expect_done();
  EXPECT_THAT(pair.b.hca.send_statuses(), ElementsAre(kSuccess));
}

TEST_P(PageFaults, AnswersThatFindNoRoomAreAskedForAgain) {
  bring_all(pair.b);
  pair.b.hca.fault_answer = FaultAnswer::kBusy;
  with_first_packet(false, [this] { take_away(pair.b, 0x9F); });
  pair.a.post(*pair.qa, to_paged(read(0x200000, 0, 0xA0000)));
  pair.drive_for(1ms);
  EXPECT_FALSE(pair.b.hca.faults.empty());
  bring_all(pair.b);
  pair.drive();
  expect_done();
  expect_same(0x200000, 0, 0xA0000);
}

TEST_P(PageFaults, WithoutADriverThatListensTheAccessIsRefused) {
  pair.a.hca.fault_answer = pair.b.hca.fault_answer = FaultAnswer::kNobody;
  pair.a.post(*pair.qa, to_paged(write(0x40000, 0x8000, 8)));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteAccess));
  Pair other;
  other.connect();
  other.a.hca.fault_answer = FaultAnswer::kNobody;
  make_key(other.a);
  other.a.post(*other.qa, from_paged(write(0x1000, 0x40000, 8)));
  other.drive();
  EXPECT_THAT(other.a.hca.send_statuses(), ElementsAre(kLocalProtection));
}

TEST_P(PageFaults, AQpThatLeavesItsStateWaitsNoMore) {
  for (const auto state : {QpState::kReset, QpState::kError}) {
    Pair other;
    other.connect();
    make_key(other.a);
    make_key(other.b);
    other.a.post(*other.qa, from_paged(write(0x1000, 0x40000, 8)));
    other.b.post(*other.qb, to_paged(write(0x40000, 0x8000, 8)));
    other.drive_for(1ms);
    EXPECT_EQ(other.a.hca.open_faults, 2u);
    ASSERT_TRUE(other.a.transport.modify(*other.qa, state, other.qa->attributes()));
    EXPECT_EQ(other.a.hca.open_faults, 0u);
    EXPECT_FALSE(other.a.transport.resume(*other.qa, FaultSide::kRequester, true));
    EXPECT_FALSE(other.a.transport.resume(*other.qa, FaultSide::kResponder, true));
  }
  pair.a.post(*pair.qa, from_paged(write(0x1000, 0x40000, 8)));
  pair.drive_for(1ms);
  EXPECT_EQ(pair.a.hca.open_faults, 1u);
  pair.a.transport.destroy_qp(*pair.qa);
  EXPECT_EQ(pair.a.hca.open_faults, 0u);
}

/// Indirect keys whose pieces come and go as pages do.
TEST_P(PageFaults, APieceOfTheNullKeyIsAPageThatIsAway) {
  constexpr MKey kList{0x7900};
  auto attributes = pair.b.keys.find(kKey)->attributes();
  attributes.key = kList;
  attributes.pages.clear();
  attributes.form = KeyForm::kPieces;
  attributes.equal_pieces = true;
  attributes.whole_space = true;
  attributes.start = 0;
  attributes.log_page_size = 14;
  auto made = std::make_unique<MemoryKey>(attributes);
  for (std::size_t i = 0; i != 4; ++i) made->set_piece(i, 0, kNullKey);
  made->refresh();
  auto& list = pair.b.keys.insert(std::move(made));
  auto request = write(0x40000, 0, 0x1000);
  request.rkey = kList;
  request.remote_address = 0x7800;  // the end of piece 1 and the start of piece 2
  pair.a.post(*pair.qa, request);
  const auto resume_with = [&](std::size_t number) {
    pair.drive_for(3ms);
    ASSERT_EQ(pair.b.hca.open_faults, 1u);
    EXPECT_EQ(pair.b.hca.faults.back().rkey, kList);
    pair.b.keys.change(list, [&] {
      list.set_piece(number, kKeyStart + number * 0x4000, kPaged);
      list.refresh();
    });
    pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  };
  resume_with(1);  // its own page is missing
  pair.drive_for(3ms);
  bring_all(pair.b);
  pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false);
  resume_with(2);
  pair.drive();
  expect_done();
  expect_same(0x40000, 0x7800, 0x1000);
  request.remote_address = 0x10000;  // beyond the last piece
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.back().status, WorkStatus::kRemoteAccess);
}

}  // namespace
}  // namespace softhca::rdma::test
