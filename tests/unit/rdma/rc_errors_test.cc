// RC: all causes of an error completion or a NAK.
#include "rdma/rc_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

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
  void forbid(bool AccessFlags::* flag) {
    auto attributes = pair.qb->attributes();
    attributes.access_flags.*flag = false;
    EXPECT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kRts, attributes));
  }
};

// IBTA 9.9.3: what the QP is not set up for is an invalid request. Only keys refuse accesses.
TEST_F(RcAccessFlags, QpWithoutRemoteWriteRefusesWrites) {
  forbid(&AccessFlags::remote_write);
  run(write(0, 0, 100));
  expect_refused(kRemoteInvalidRequest, QpEvent::kInvalidRequest);
}

TEST_F(RcAccessFlags, QpWithoutRemoteReadRefusesReads) {
  forbid(&AccessFlags::remote_read);
  run(read(0, 0, 100));
  expect_refused(kRemoteInvalidRequest, QpEvent::kInvalidRequest);
}

TEST_F(RcAccessFlags, QpWithoutRemoteAtomicRefusesAtomics) {
  forbid(&AccessFlags::remote_atomic);
  run(fetch_add(0, 0, 1));
  expect_refused(kRemoteInvalidRequest, QpEvent::kInvalidRequest);
}

TEST_F(RcAccessFlags, QpWithPlainAtomicsAloneRefusesMaskedOnes) {
  auto attributes = pair.qb->attributes();
  attributes.access_flags.masked_atomic_sizes = 0;
  EXPECT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kRts, attributes));
  auto request = fetch_add(0, 0, 1);
  request.opcode = SendOpcode::kMaskedFetchAdd;
  request.masked = {.size = 8};
  run(request);
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

TEST_F(RcErrors, MoreAtomicsThanTheResponderHasResourcesForAreInvalid) {
  auto attributes = pair.qa->attributes();
  attributes.max_rd_atomic = 16;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  for (int i = 0; i < 16; ++i) pair.a.post(*pair.qa, fetch_add(0, 0, 1));
  pair.drive();
  EXPECT_EQ(pair.qb->state(), QpState::kError);
  const auto statuses = pair.a.hca.send_statuses();
  ASSERT_EQ(statuses.size(), 16u);
  EXPECT_EQ(statuses[3], kSuccess);
  EXPECT_EQ(statuses[4], kRemoteInvalidRequest);
  EXPECT_EQ(statuses[5], kFlushed);
}

// A difference from cards, which docs/connectx.md states.
TEST_F(RcErrors, ShortReadsAreAnsweredAsTheyArriveAndAreNeverTooMany) {
  auto attributes = pair.qa->attributes();
  attributes.max_rd_atomic = 16;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  for (int i = 0; i < 16; ++i) pair.a.post(*pair.qa, read(0, 0, 1024));
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(16, kSuccess));
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

}  // namespace
}  // namespace softhca::rdma::test
