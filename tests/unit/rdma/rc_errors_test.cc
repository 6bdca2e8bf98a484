// RC: all causes of an error completion, a NAK or a flush.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

class RcErrors : public ::testing::Test {
 protected:
  RcErrors() {
    pair.connect();
    pair.a.fill(0, 0x20000, 1);
  }
  /// Posts `request` and a second one that must be flushed, then runs.
  void run(const SendRequest& request) {
    pair.a.post(*pair.qa, request);
    pair.a.post(*pair.qa, write(0, 0, 8));
    pair.drive();
  }
  /// Expects the requester in ERR, with the request failed by `status`.
  void expect_failed(WorkStatus status) {
    EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(status, kFlushed));
    EXPECT_EQ(pair.qa->state(), QpState::kError);
    EXPECT_NE(pair.a.hca.sends.at(0).reason, Reason::kNone);
  }
  /// The same, and the responder is in ERR, too, and has raised `event`.
  void expect_refused(WorkStatus status, QpEvent event) {
    expect_failed(status);
    EXPECT_EQ(pair.qb->state(), QpState::kError);
    EXPECT_EQ(pair.b.hca.count(event), 1u);
  }
  MKey key_on(End& end, const std::function<void(MemoryKey::Attributes&)>& change) {
    auto attributes = end.keys.find(kKey)->attributes();
    attributes.key = MKey(next_key_);
    next_key_ += 0x100;
    change(attributes);
    return end.keys.insert(attributes).key();
  }

  Pair pair;
  std::uint32_t next_key_ = 0x5000;
};

// Responder --------------------------------------------------------------------------------------

TEST_F(RcErrors, WriteToAnUnknownKeyIsARemoteAccessError) {
  auto request = write(0, 0, 100);
  request.rkey = MKey(0x999900);
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
  EXPECT_EQ(pair.b.counters.resp_remote_access_errors, 1u);
  EXPECT_EQ(pair.a.counters.req_remote_access_errors, 1u);
}

TEST_F(RcErrors, WriteBeyondTheKeyChangesNothing) {
  auto request = write(0, kMemorySize - 5000, 5001);
  const auto before = pair.b.memory;
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
  EXPECT_EQ(pair.b.memory, before);
}

TEST_F(RcErrors, WriteBeforeTheKeyIsRefused) {
  auto request = write(0, 0, 100);
  request.remote_address = kKeyStart - 1;
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, AddressThatWrapsAroundIsRefused) {
  auto request = write(0, 0, 100);
  request.remote_address = UINT64_MAX - 10;
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, WriteWithoutTheRightIsRefused) {
  auto request = write(0, 0, 100);
  request.rkey = key_on(pair.b, [](auto& key) { key.access = kLocalWrite | kRemoteRead; });
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, ReadWithoutTheRightIsRefused) {
  auto request = read(0, 0, 100);
  request.rkey = key_on(pair.b, [](auto& key) { key.access = kLocalWrite | kRemoteWrite; });
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, AtomicWithoutTheRightIsRefused) {
  auto request = fetch_add(0, 0, 1);
  request.rkey = key_on(pair.b, [](auto& key) { key.access = kRemoteRead | kRemoteWrite; });
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, KeyOfAnotherProtectionDomainIsRefused) {
  auto request = write(0, 0, 100);
  request.rkey = key_on(pair.b, [](auto& key) { key.pd = Pd{8}; });
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, KeyOfAnotherQpIsRefused) {
  auto request = write(0, 0, 100);
  request.rkey = key_on(pair.b, [](auto& key) { key.only_qpn = Qpn(0x23); });
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, KeyOfThisQpIsAccepted) {
  auto request = write(0, 0, 100);
  request.rkey = key_on(pair.b, [](auto& key) { key.only_qpn = Qpn(0x22); });
  run(request);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
}

// IBTA 10.2.9.3: the buffers of a shared receive queue belong to the SRQ's owner, not to the QP
// that consumes one.
TEST(RcSharedReceive, KeysOfAReceiveAreCheckedWithTheProtectionDomainOfItsQueue) {
  for (const bool own : {true, false}) {
    Pair pair;
    pair.qp_options.uses_srq = true;
    pair.qp_options.has_receive_queue = false;
    pair.connect();
    auto attributes = pair.b.keys.find(kKey)->attributes();
    attributes.key = MKey(0x9900);
    attributes.pd = Pd(9);
    pair.b.keys.insert(attributes);
    pair.b.post_receive(*pair.qb, {End::sge(0, 100, own ? MKey(0x9900) : kKey)});
    pair.b.hca.srq.front().pd = Pd(9);
    pair.a.post(*pair.qa, send(0, 100));
    pair.drive();
    ASSERT_EQ(pair.b.hca.receives.size(), 1u);
    const auto& completion = pair.b.hca.receives[0].completion;
    EXPECT_EQ(completion.status, own ? kSuccess : kLocalProtection);
    EXPECT_EQ(completion.reason, own ? Reason::kNone : Reason::kKeyOtherPd);
  }
}

TEST_F(RcErrors, InvalidatedKeyIsRefused) {
  auto request = write(0, 0, 100);
  request.rkey = key_on(pair.b, [](auto& key) { key.free = true; });
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, OldVariantOfAKeyIsRefused) {
  auto attributes = pair.b.keys.find(kKey)->attributes();
  pair.b.keys.erase_index(pair.b.keys.shape().index(kKey));
  attributes.key = MKey(kKey.value() + 1);
  pair.b.keys.insert(attributes);
  run(write(0, 0, 100));
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, KeyThatGoesDuringAWriteEndsIt) {
  pair.script = [&](const wire::IbPacket& packet, bool) {
    if (packet.bth.psn == wire::Psn(0xFFFFF0 + 5)) pair.b.keys.find(kKey)->set_free(true);
    return Fate::kDeliver;
  };
  run(write(0, 0, 20000));
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, KeyThatGoesDuringAReadEndsIt) {
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    if (!to_b && packet.bth.psn == wire::Psn(0xFFFFF0 + 5)) {
      pair.b.keys.find(kKey)->set_free(true);
    }
    return Fate::kDeliver;
  };
  run(read(0, 0, 1'000'000));  // more than the peer answers in one run
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
}

TEST_F(RcErrors, OperationsOfNoBytesDoNotLookAtTheirKey) {
  for (auto request : {write(0, 0, 0), read(0, 0, 0)}) {
    request.rkey = MKey(0x999900);
    request.remote_address = UINT64_MAX;
    pair.a.post(*pair.qa, request);
  }
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
}

TEST_F(RcErrors, UnmappedMemoryBehindAKeyIsARemoteOperationalError) {
  auto request = write(0, 0, 100);
  request.rkey = key_on(pair.b, [](auto& key) { key.pages.assign(key.pages.size(), 0); });
  run(request);
  expect_refused(kRemoteOperation, QpEvent::kInvalidRequest);
}

class RcAccessFlags : public RcErrors {
 protected:
  void forbid(bool QpAttributes::* flag) {
    auto attributes = pair.qb->attributes();
    attributes.*flag = false;
    EXPECT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kRts, attributes));
  }
};

// IBTA 9.9.3: what the QP is not set up for is an invalid request. Only keys refuse accesses.
TEST_F(RcAccessFlags, QpWithoutRemoteWriteRefusesWrites) {
  forbid(&QpAttributes::remote_write);
  run(write(0, 0, 100));
  expect_refused(kRemoteInvalidRequest, QpEvent::kInvalidRequest);
}
TEST_F(RcAccessFlags, QpWithoutRemoteReadRefusesReads) {
  forbid(&QpAttributes::remote_read);
  run(read(0, 0, 100));
  expect_refused(kRemoteInvalidRequest, QpEvent::kInvalidRequest);
}
TEST_F(RcAccessFlags, QpWithoutRemoteAtomicRefusesAtomics) {
  forbid(&QpAttributes::remote_atomic);
  run(fetch_add(0, 0, 1));
  expect_refused(kRemoteInvalidRequest, QpEvent::kInvalidRequest);
}

TEST_F(RcErrors, AtomicAtAnUnalignedAddressIsInvalid) {
  run(fetch_add(0, 4, 1));
  expect_refused(kRemoteInvalidRequest, QpEvent::kInvalidRequest);
}

TEST_F(RcErrors, MoreReadsThanTheResponderHasResourcesForAreInvalid) {
  auto attributes = pair.qa->attributes();
  attributes.max_rd_atomic = 16;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  for (int i = 0; i < 16; ++i) pair.a.post(*pair.qa, read(0, 0, 100000));
  pair.drive();
  EXPECT_EQ(pair.qb->state(), QpState::kError);
  EXPECT_THAT(pair.a.hca.send_statuses(), ::testing::Contains(kRemoteInvalidRequest));
  // Requests accepted earlier are answered first.
  EXPECT_EQ(pair.a.hca.send_statuses().at(3), kSuccess);
}

TEST_F(RcErrors, MessageLongerThanTheReceiveBufferFailsBothSides) {
  pair.b.post_receive(*pair.qb, {End::sge(0x1000, 1999)}, 5);
  pair.b.post_receive(*pair.qb, {End::sge(0x1000, 1999)}, 6);
  const auto before = pair.b.memory;
  run(send(0, 2000));
  expect_failed(kRemoteInvalidRequest);
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalLength, kFlushed));
  EXPECT_EQ(pair.b.hca.receives.at(0).completion.cookie, 5u);
  EXPECT_EQ(pair.qb->state(), QpState::kError);
  EXPECT_EQ(std::memcmp(pair.b.memory.data() + 0x1000 + 1999, before.data() + 0x1000 + 1999, 100),
            0);
}

TEST_F(RcErrors, ReceiveBufferThatMayNotBeWrittenFailsBothSides) {
  const auto key = key_on(pair.b, [](auto& k) { k.access = kLocalRead; });
  pair.b.post_receive(*pair.qb, {End::sge(0x1000, 2000, key)});
  run(send(0, 2000));
  expect_failed(kRemoteOperation);
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalProtection));
}

TEST_F(RcErrors, MalformedReceiveRequestFailsBothSides) {
  pair.b.hca.malformed_receive = true;
  pair.b.post_receive(*pair.qb, {});
  run(send(0, 10));
  expect_failed(kRemoteOperation);
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalQpOperation));
}

TEST_F(RcErrors, InvalidatingAKeyThatMayNotBeIsARemoteAccessError) {
  pair.b.post_receive(*pair.qb, {End::sge(0, 100)});
  auto request = send(0, 10);
  request.opcode = SendOpcode::kSendWithInvalidate;
  request.immediate = kKey.value();
  run(request);
  expect_refused(kRemoteAccess, QpEvent::kAccessError);
  EXPECT_FALSE(pair.b.keys.find(kKey)->is_free());
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
}

TEST_F(RcErrors, EarlierRequestsCompleteBeforeTheOneThatIsRefused) {
  auto bad = write(0, 0, 100);
  bad.rkey = MKey(0x999900);
  pair.a.post(*pair.qa, write(0, 0, 3000));
  pair.a.post(*pair.qa, read(0, 0, 30000));
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, read(0, 0, 3000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kRemoteAccess, kFlushed));
}

// Requester --------------------------------------------------------------------------------------

TEST_F(RcErrors, PayloadWithoutKeyIsALocalProtectionErrorAfterEarlierRequests) {
  auto bad = write(0, 0, 100);
  bad.sges[0].lkey = MKey(0x999900);
  pair.a.post(*pair.qa, read(0, 0, 5000));
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kLocalProtection, kFlushed));
  EXPECT_EQ(pair.qa->state(), QpState::kError);
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
}

TEST_F(RcErrors, NothingOfAMessageIsSentIfAPieceOfItIsRefused) {
  auto bad = write(0, 0, 5000);
  bad.sges.push_back(End::sge(kMemorySize - 1, 2));
  pair.keep_sent = true;
  run(bad);
  expect_failed(kLocalProtection);
  EXPECT_TRUE(pair.sent.empty());
}

TEST_F(RcErrors, ReadIntoMemoryThatMayNotBeWrittenIsALocalProtectionError) {
  auto request = read(0, 0, 100);
  request.sges[0].lkey = key_on(pair.a, [](auto& key) { key.access = kLocalRead; });
  run(request);
  expect_failed(kLocalProtection);
}

TEST_F(RcErrors, MalformedSendRequestIsALocalOperationError) {
  pair.a.hca.malformed_send = true;
  run(write(0, 0, 100));
  expect_failed(kLocalQpOperation);
}

TEST_F(RcErrors, MessageOfMoreThanTwoGigabytesIsALocalLengthError) {
  auto request = write(0, 0, 0x80000000);
  request.sges.push_back(End::sge(0, 1));
  run(request);
  expect_failed(kLocalLength);
}

TEST_F(RcErrors, AtomicResultMustHaveEightBytes) {
  auto request = fetch_add(0, 0, 1);
  request.sges[0].length = 4;
  run(request);
  expect_failed(kLocalLength);
}

TEST_F(RcErrors, RefusedLocalOperationFailsTheQp) {
  pair.a.hca.local_status = kMemoryWindowBind;
  SendRequest local;
  local.opcode = SendOpcode::kLocal;
  run(local);
  expect_failed(kMemoryWindowBind);
}

TEST_F(RcErrors, UnreadableSendQueueIsACatastrophicError) {
  pair.a.hca.send_memory_gone = true;
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();
  EXPECT_EQ(pair.qa->state(), QpState::kError);
  EXPECT_EQ(pair.a.hca.count(QpEvent::kCatastrophic), 1u);
}

TEST_F(RcErrors, ReadResponseOfTheWrongLengthIsABadResponse) {
  // The peer uses another path MTU.
  Pair other;
  other.connect();
  auto attributes = other.attributes_for(other.b, other.a, Qpn(0x11));
  attributes.path_mtu = 512;
  ASSERT_TRUE(other.b.transport.modify(*other.qb, QpState::kReset, attributes));
  Pair::to_rts(other.b, *other.qb, attributes);
  other.a.post(*other.qa, read(0, 0, 2000));
  other.drive();
  EXPECT_THAT(other.a.hca.send_statuses(), ElementsAre(kBadResponse));
}

// Malformed requests of a broken peer ------------------------------------------------------------

TEST_F(RcErrors, PacketsShorterThanThePathMtuInsideAMessageAreInvalid) {
  Pair other;
  other.connect();
  auto attributes = other.attributes_for(other.a, other.b, Qpn(0x22));
  attributes.path_mtu = 512;
  ASSERT_TRUE(other.a.transport.modify(*other.qa, QpState::kReset, attributes));
  Pair::to_rts(other.a, *other.qa, attributes);
  other.a.post(*other.qa, write(0, 0, 2000));
  other.drive();
  EXPECT_THAT(other.a.hca.send_statuses(), ElementsAre(kRemoteInvalidRequest));
  EXPECT_EQ(other.b.counters.resp_remote_invalid_request, 1u);
}

// Flushing ---------------------------------------------------------------------------------------

TEST_F(RcErrors, ModifyToErrorFlushesBothQueuesInOrderAndLaterPostsToo) {
  for (std::uint32_t i = 0; i < 100; ++i) pair.a.post_receive(*pair.qa, {}, i);
  auto unsignaled = write(0, 0, 8);
  unsignaled.signaled = false;
  pair.a.hca.sends_posted[pair.qa->qpn()].assign(50, unsignaled);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kError, {}));
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 50u);
  EXPECT_THAT(pair.a.hca.send_statuses(), ::testing::Each(kFlushed));
  ASSERT_EQ(pair.a.hca.receives.size(), 100u);
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(pair.a.hca.receives[i].completion.cookie, i);
    EXPECT_EQ(pair.a.hca.receives[i].completion.status, kFlushed);
  }
  EXPECT_TRUE(pair.qa->flushes_receives());
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post_receive(*pair.qa, {}, 1000);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 51u);
  EXPECT_EQ(pair.a.hca.receives.at(100).completion.cookie, 1000u);
}

TEST_F(RcErrors, FlushingIsWorkWithinTheBudgetOfARun) {
  pair.a.hca.endless_sends = true;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kError, {}));
  EXPECT_EQ(pair.a.hca.fetched, 0u);
  for (std::uint32_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(pair.a.run(pair.now, 64), pair.now);
    EXPECT_EQ(pair.a.hca.fetched, 64 * i);
  }
}

TEST_F(RcErrors, RequestsInFlightAreFlushedAndTheirAnswersIgnored) {
  for (int i = 0; i < 5; ++i) pair.a.post(*pair.qa, write(0, 0, 3000));
  pair.a.run(pair.now);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kError, {}));
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(5, kFlushed));
  EXPECT_GT(pair.a.transport.counters().dropped_for(Drop::kQpState), 0u);
}

TEST_F(RcErrors, ReceiveInUseIsFlushedToo) {
  pair.b.post_receive(*pair.qb, {End::sge(0, 9000)}, 3);
  pair.script = [](const wire::IbPacket& packet, bool) {
    return packet.info().last ? Fate::kLose : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, send(0, 9000));
  pair.drive_for(10us);
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, {}));
  pair.drive_for(10us);
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(pair.b.hca.receives.at(0).completion.cookie, 3u);
}

TEST_F(RcErrors, ResetDropsEverythingWithoutACompletion) {
  for (int i = 0; i < 5; ++i) pair.a.post(*pair.qa, write(0, 0, 3000));
  pair.a.run(pair.now);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kReset, {}));
  pair.a.hca.sends_posted.clear();
  pair.drive();
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.qa->next_send_psn(), 0u);
  EXPECT_EQ(pair.qa->send_sequence(), 0u);
}

TEST_F(RcErrors, QpWorksAgainAfterErrorAndReset) {
  run([] {
    auto bad = write(0, 0, 100);
    bad.rkey = MKey(0x999900);
    return bad;
  }());
  for (auto* end : {&pair.a, &pair.b}) {
    auto& qp = end == &pair.a ? *pair.qa : *pair.qb;
    auto attributes = qp.attributes();
    std::swap(attributes.sq_psn, attributes.rq_psn);
    ASSERT_TRUE(end->transport.modify(qp, QpState::kReset, {}));
    Pair::to_rts(*end, qp, attributes);
  }
  pair.a.hca.sends.clear();
  pair.a.post(*pair.qa, write(0, 0x1000, 10000));
  pair.a.post(*pair.qa, read(0x8000, 0x1000, 10000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.a.at(0x8000), 10000), 0);
}

TEST_F(RcErrors, DestroyedQpLeavesNothingBehind) {
  for (int i = 0; i < 5; ++i) pair.a.post(*pair.qa, read(0, 0, 300000));
  pair.drive_for(1500ns);
  pair.a.transport.destroy_qp(*pair.qa);
  pair.b.transport.destroy_qp(*pair.qb);
  pair.drive();
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.a.transport.find(Qpn(0x11)), nullptr);
  EXPECT_TRUE(pair.a.transport.queue_pairs().empty());
}

TEST(RcSrq, ErrorLeavesTheSharedQueueAloneAndRaisesLastWqeReached) {
  Pair pair;
  pair.qp_options.has_receive_queue = false;
  pair.qp_options.uses_srq = true;
  pair.connect();
  pair.b.post_receive(*pair.qb, {End::sge(0, 100)}, 1);
  pair.b.post_receive(*pair.qb, {End::sge(0, 100)}, 2);
  pair.a.post(*pair.qa, send(0, 100));
  pair.drive();
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, {}));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.b.hca.srq.size(), 1u);
  EXPECT_EQ(pair.b.hca.count(QpEvent::kLastWqeReached), 1u);
}

// IBTA 11.6.3.2: software may destroy the QP after this event, as no further WQE completes.
TEST(RcSrq, LastWqeReachedFollowsTheFlushOfTheLastWqe) {
  Pair pair;
  pair.qp_options.has_receive_queue = false;
  pair.qp_options.uses_srq = true;
  pair.connect();
  pair.script = [](const wire::IbPacket& packet, bool to_b) {
    return to_b && packet.info().last ? Fate::kLose : Fate::kDeliver;
  };
  pair.b.post_receive(*pair.qb, {End::sge(0, 3000)}, 1);
  pair.a.post(*pair.qa, send(0, 3000));
  pair.drive_for(10us);  // b has taken the receive request for the first packets
  ASSERT_TRUE(pair.b.hca.srq.empty());
  pair.b.post(*pair.qb, send(0, 100));
  pair.b.run(pair.now);  // its frame is not released yet
  ASSERT_EQ(pair.b.waiting, 1u);
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, {}));
  pair.b.run(pair.now);
  EXPECT_TRUE(pair.b.hca.receives.empty());
  EXPECT_EQ(pair.b.hca.count(QpEvent::kLastWqeReached), 0u);
  pair.drive_for(10us);
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(pair.b.hca.count(QpEvent::kLastWqeReached), 1u);
}

TEST(RcSrq, QpWithoutAnyReceiveQueueRefusesSends) {
  Pair pair;
  pair.qp_options.has_receive_queue = false;
  pair.connect();
  pair.a.post(*pair.qa, send(0, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteInvalidRequest));
}

}  // namespace
}  // namespace softhca::rdma::test
