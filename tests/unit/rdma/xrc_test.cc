// XRC: each request names its shared receive queue, and thereby the protection domain for the
// access (IBTA Annex A14).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using enum WorkStatus;

constexpr XrcDomain kDomain{5};
constexpr XrcSrqn kFirstSrq{0x51};
constexpr XrcSrqn kSecondSrq{0x52};
constexpr Pd kSecondPd{9};
constexpr MKey kSecondKey{0x222200};

/// An initiator on a. On b a target with two SRQs of its XRC domain; nothing uses the target's own
/// PD.
class Xrc : public ::testing::Test {
 protected:
  Xrc() : Xrc(WireOptions{}, 1) {}
  Xrc(WireOptions options, unsigned seed) : pair(options, seed) {
    auto for_a = pair.attributes_for(pair.a, pair.b, Qpn(0x22));
    auto for_b = pair.attributes_for(pair.b, pair.a, Qpn(0x11));
    for_b.pd = Pd(0xDEAD);
    pair.qa = &pair.a.create_qp(Qpn(0x11), QpType::kXrcInitiator, for_a,
                                {.has_receive_queue = false, .counters = &pair.a.counters});
    pair.qb = &pair.b.create_qp(Qpn(0x22), QpType::kXrcTarget, for_b,
                                {.has_send_queue = false,
                                 .has_receive_queue = false,
                                 .xrc_domain = kDomain,
                                 .counters = &pair.b.counters});
    Pair::to_rts(pair.a, *pair.qa, for_a);
    Pair::to_rts(pair.b, *pair.qb, for_b);
    pair.b.transport.xrc_srqs().add(kFirstSrq, {.domain = kDomain, .pd = kPd});
    pair.b.transport.xrc_srqs().add(kSecondSrq, {.domain = kDomain, .pd = kSecondPd});
    auto second = pair.b.keys.find(kKey)->attributes();
    second.key = kSecondKey;
    second.pd = kSecondPd;
    pair.b.keys.insert(second);
    pair.a.fill(0, 0x10000, 1);
  }
  static SendRequest to(XrcSrqn srqn, SendRequest request) {
    request.remote_srqn = srqn;
    return request;
  }
  void post_receive(XrcSrqn srqn, std::uint64_t offset, std::uint32_t cookie = 0) {
    const auto key = srqn == kSecondSrq ? kSecondKey : kKey;
    pair.b.hca.xrc_srqs[srqn].push_back({.cookie = cookie,
                                         .pd = srqn == kSecondSrq ? kSecondPd : kPd,
                                         .sges = {End::sge(offset, 0x10000, key)}});
  }
  /// Expects the request to be refused as invalid, and the target to raise `event`.
  void expect_refused(const SendRequest& request, WorkStatus status, QpEvent event, Reason reason) {
    pair.a.post(*pair.qa, request);
    pair.drive();
    EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(status));
    EXPECT_EQ(pair.qb->state(), QpState::kError);
    ASSERT_EQ(pair.b.hca.count(event), 1u);
    EXPECT_EQ(pair.b.hca.events.back().reason, reason);
  }
  Pair pair;
};

TEST_F(Xrc, SendsTakeTheirReceivesFromTheSrqThatTheyName) {
  post_receive(kFirstSrq, 0x100000, 1);
  post_receive(kSecondSrq, 0x200000, 2);
  post_receive(kFirstSrq, 0x300000, 3);
  pair.a.post(*pair.qa, to(kSecondSrq, send(0, 5000)));
  pair.a.post(*pair.qa, to(kFirstSrq, send(0x100, 10)));
  auto immediate = to(kFirstSrq, write(0x200, 0x400000, 3000));
  immediate.opcode = SendOpcode::kRdmaWriteWithImmediate;
  pair.a.post(*pair.qa, immediate);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  const XrcSrqn srqns[] = {kSecondSrq, kFirstSrq, kFirstSrq};
  const std::uint32_t cookies[] = {2, 1, 3};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pair.b.hca.receives[i].completion.srqn, srqns[i]);
    EXPECT_EQ(pair.b.hca.receives[i].completion.cookie, cookies[i]);
  }
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x200000), 5000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x100), pair.b.at(0x100000), 10), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x200), pair.b.at(0x400000), 3000), 0);
}

TEST_F(Xrc, EveryRequestPacketNamesTheSrqAndNoAnswerDoes) {
  pair.keep_sent = true;
  post_receive(kFirstSrq, 0x100000);
  pair.a.post(*pair.qa, to(kFirstSrq, send(0, 3000)));
  pair.a.post(*pair.qa, to(kFirstSrq, write(0, 0x400000, 3000)));
  pair.a.post(*pair.qa, to(kFirstSrq, read(0x20000, 0, 3000)));
  pair.a.post(*pair.qa, to(kFirstSrq, fetch_add(0x30000, 0, 1)));
  pair.a.post(*pair.qa, to(kFirstSrq, compare_swap(0x30000, 0, 1, 2)));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
  EXPECT_EQ(pair.sent.size(), 9u + 5) << "requests, and answers to the last three";
  for (const auto& [packet, to_b] : pair.sent) {
    EXPECT_EQ(packet.info().service, wire::Service::XRC);
    EXPECT_EQ(packet.info().has(wire::ExtHeader::kXrcEth), to_b);
    if (to_b) {
      EXPECT_EQ(packet.ext.xrceth.xrc_srq, kFirstSrq) << packet.info().name;
    }
  }
}

TEST_F(Xrc, RkeysAreCheckedWithThePdOfTheSrq) {
  pair.b.fill(0x100000, 0x10000, 2);
  pair.b.store64(0x200000, 40);
  std::vector<SendRequest> requests = {write(0, 0x400000, 3000), read(0x20000, 0x100000, 5000),
                                       fetch_add(0x30000, 0x200000, 2)};
  for (auto& request : requests) {
    request.rkey = kSecondKey;
    pair.a.post(*pair.qa, to(kSecondSrq, request));
  }
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x400000), 3000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x20000), pair.b.at(0x100000), 5000), 0);
  EXPECT_EQ(pair.b.load64(0x200000), 42u);
}

TEST_F(Xrc, RkeyOfAnotherSrqsPdIsRefused) {
  auto request = write(0, 0x400000, 100);
  request.rkey = kSecondKey;
  expect_refused(to(kFirstSrq, request), kRemoteAccess, QpEvent::kAccessError, Reason::kKeyOtherPd);
}

TEST_F(Xrc, ASendInvalidatesOnlyKeysOfItsSrqsPd) {
  auto key = pair.b.keys.find(kSecondKey)->attributes();
  key.key = MKey(0x333300);
  key.invalidatable = true;
  pair.b.keys.insert(key);
  post_receive(kSecondSrq, 0x200000);
  auto request = to(kSecondSrq, send(0, 10));
  request.opcode = SendOpcode::kSendWithInvalidate;
  request.immediate = key.key.value();
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_TRUE(pair.b.keys.find(key.key)->is_free());
}

TEST_F(Xrc, AnSrqThatDoesNotExistIsAnInvalidRequest) {
  expect_refused(to(XrcSrqn(0x77), send(0, 10)), kRemoteInvalidRequest, QpEvent::kInvalidXrceth,
                 Reason::kXrcSrqUnknown);
}

TEST_F(Xrc, AWriteNeedsAnSrqToo) {
  expect_refused(to(XrcSrqn(0x77), write(0, 0x400000, 10)), kRemoteInvalidRequest,
                 QpEvent::kInvalidXrceth, Reason::kXrcSrqUnknown);
}

TEST_F(Xrc, AnSrqOfAnotherDomainIsAnInvalidRequest) {
  pair.b.transport.xrc_srqs().add(XrcSrqn(0x77), {.domain = XrcDomain(6), .pd = kPd});
  post_receive(XrcSrqn(0x77), 0x100000);
  expect_refused(to(XrcSrqn(0x77), send(0, 10)), kRemoteInvalidRequest,
                 QpEvent::kXrcDomainViolation, Reason::kXrcSrqOfOtherDomain);
  EXPECT_EQ(pair.b.hca.xrc_srqs[XrcSrqn(0x77)].size(), 1u) << "it takes nothing from it";
}

TEST_F(Xrc, AnEmptySrqIsNotReadyAndTheOtherIs) {
  post_receive(kSecondSrq, 0x200000);
  pair.a.post(*pair.qa, to(kFirstSrq, send(0, 3000)));
  pair.drive_for(100us);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.a.counters.rnr_naks_received, 1u);
  post_receive(kFirstSrq, 0x100000);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x100000), 3000), 0);
}

TEST_F(Xrc, ADestroyedSrqCausesNoCompletion) {
  post_receive(kFirstSrq, 0x100000);
  bool gone = false;
  pair.script = [&](const wire::IbPacket& packet, bool) {
    if (std::exchange(gone, packet.info().last)) return Fate::kDeliver;
    return gone ? Fate::kLose : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, to(kFirstSrq, send(0, 3000)));
  pair.drive_for(10us);
  ASSERT_TRUE(gone) << "the last packet has been lost";
  pair.b.transport.xrc_srqs().remove(kFirstSrq);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteInvalidRequest));
  EXPECT_EQ(pair.qb->state(), QpState::kError);
  EXPECT_TRUE(pair.b.hca.receives.empty());
}

TEST_F(Xrc, AWqeOfADestroyedSrqIsNotChargedToTheNextWithItsNumber) {
  post_receive(kFirstSrq, 0x100000, 7);
  pair.script = [](const wire::IbPacket& packet, bool) {
    return packet.info().last ? Fate::kLose : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, to(kFirstSrq, send(0, 3000)));
  pair.drive_for(10us);
  pair.b.transport.xrc_srqs().remove(kFirstSrq);
  pair.b.transport.xrc_srqs().add(kFirstSrq, {.domain = kDomain, .pd = kPd});
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, pair.qb->attributes()));
  pair.b.run(pair.now);
  EXPECT_TRUE(pair.b.hca.receives.empty());
}

TEST_F(Xrc, AReceiveThatWasBegunIsFlushedWithItsTarget) {
  post_receive(kFirstSrq, 0x100000, 7);
  pair.script = [](const wire::IbPacket& packet, bool) {
    return packet.info().last ? Fate::kLose : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, to(kFirstSrq, send(0, 3000)));
  pair.drive_for(10us);
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, pair.qb->attributes()));
  pair.b.run(pair.now);
  ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(pair.b.hca.receives[0].completion.srqn, kFirstSrq);
  EXPECT_EQ(pair.b.hca.receives[0].completion.cookie, 7u);
}

/// The receive that a refused packet took stays for its repetition. A peer may repeat the packet
/// with the other SRQ.
TEST_F(Xrc, AReceiveThatWaitedForAPageServesItsOwnSrqAlone) {
  constexpr MKey kAbsent{0x7700};
  auto attributes = pair.b.keys.find(kKey)->attributes();
  attributes.key = kAbsent;
  attributes.pages.clear();
  attributes.form = KeyForm::kPages;
  attributes.reloadable = true;
  auto made = std::make_unique<MemoryKey>(attributes);
  made->refresh();
  pair.b.keys.insert(std::move(made));
  pair.b.hca.xrc_srqs[kFirstSrq].push_back(
      {.cookie = 1, .pd = kPd, .sges = {End::sge(0x100000, 0x1000, kAbsent)}});
  post_receive(kSecondSrq, 0x200000, 2);
  pair.a.post(*pair.qa, to(kFirstSrq, send(0, 10)));
  pair.drive_for(100us);
  ASSERT_EQ(pair.b.hca.faults.size(), 1u);
  ASSERT_TRUE(pair.b.transport.resume(*pair.qb, FaultSide::kResponder, false));

  wire::IbAddress address;
  address.source_gid = pair.a.gid.gid;
  address.source_mac = pair.a.gid.mac;
  address.destination_gid = pair.b.gid.gid;
  address.destination_mac = pair.b.gid.mac;
  wire::Bth bth;
  bth.opcode = wire::Opcode::XRC_SEND_ONLY;
  bth.dest_qp = Qpn(0x22);
  bth.psn = wire::Psn(pair.qb->next_receive_psn());
  wire::ExtHeaders ext;
  ext.xrceth.xrc_srq = kSecondSrq;
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, ext, 0, frame);
  EXPECT_TRUE(pair.b.transport.handle_frame(frame, pair.now));
  pair.drive();

  EXPECT_EQ(pair.qb->state(), QpState::kError);
  ASSERT_EQ(pair.b.hca.count(QpEvent::kInvalidRequest), 1u);
  EXPECT_EQ(pair.b.hca.events.back().reason, Reason::kXrcSrqChanged);
  ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(pair.b.hca.receives[0].completion.srqn, kFirstSrq);
  EXPECT_EQ(pair.b.hca.xrc_srqs[kSecondSrq].size(), 1u) << "it takes nothing from the other";
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteInvalidRequest));
}

TEST_F(Xrc, AnInitiatorTakesNoRequests) {
  wire::IbAddress address;
  address.source_gid = pair.b.gid.gid;
  address.destination_gid = pair.a.gid.gid;
  address.destination_mac = pair.a.gid.mac;
  wire::Bth bth;
  bth.opcode = wire::Opcode::XRC_SEND_ONLY;
  bth.dest_qp = Qpn(0x11);
  bth.psn = wire::Psn(pair.qa->next_receive_psn());
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, {}, 0, frame);
  EXPECT_TRUE(pair.a.transport.handle_frame(frame, pair.now));
  EXPECT_EQ(pair.a.transport.counters().dropped_for(Drop::kService), 1u);
}

/// A late duplicate of a READ uses the PD of the SRQ that it names, if that SRQ still exists.
TEST_F(Xrc, ARepeatedReadIsCheckedLikeTheFirst) {
  pair.b.fill(0x100000, 0x1000, 2);
  bool lost = false;
  pair.script = [&](const wire::IbPacket&, bool to_b) {
    return !to_b && !std::exchange(lost, true) ? Fate::kLose : Fate::kDeliver;
  };
  auto request = to(kSecondSrq, read(0x20000, 0x100000, 100));
  request.rkey = kSecondKey;
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_TRUE(lost);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0x20000), pair.b.at(0x100000), 100), 0);
}

class LossyXrc : public Xrc {
 protected:
  LossyXrc() : Xrc({.loss = 0.05, .duplicate = 0.03, .late = 0.03}, 11) {}
};

TEST_F(LossyXrc, MessagesOfTwoSrqsArriveOnceAndInOrder) {
  for (unsigned i = 0; i < 60; ++i) {
    const auto srqn = i % 3 == 0 ? kSecondSrq : kFirstSrq;
    post_receive(srqn, 0x100000 + i * 0x2000, i);
    pair.a.post(*pair.qa, to(srqn, send(i * 0x100, 3000 + i)));
    pair.a.post(*pair.qa, to(kFirstSrq, read(0x380000 + i * 0x100, i * 0x100, 0x100)));
  }
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
  ASSERT_EQ(pair.b.hca.receives.size(), 60u);
  for (unsigned i = 0; i < 60; ++i) {
    EXPECT_EQ(pair.b.hca.receives[i].completion.cookie, i);
    EXPECT_EQ(pair.b.hca.receives[i].completion.byte_count, 3000 + i);
    EXPECT_EQ(std::memcmp(pair.a.at(i * 0x100), pair.b.at(0x100000 + i * 0x2000), 3000), 0);
  }
}

}  // namespace
}  // namespace softhca::rdma::test
