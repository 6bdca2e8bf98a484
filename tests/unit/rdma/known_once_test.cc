// A QP caches what it has looked up: the headers of its peer's packets, and the key of the message
// that arrives. It must notice when a cached result becomes invalid.

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

constexpr WireOptions kInProcess{.trains = true};

class KnownPeer : public ::testing::Test {
 protected:
  KnownPeer() {
    pair_.adjust = [](QpAttributes& attributes) {
      attributes.retry_count = 1;
      attributes.ack_timeout = 8;
    };
    pair_.a.fill(0, 4096, 1);
    pair_.connect();
    write_and_drive(WorkStatus::kSuccess);  // b caches the headers from here on
  }
  void write_and_drive(WorkStatus expected) {
    pair_.a.hca.sends.clear();
    pair_.a.post(*pair_.qa, write(0, 8192, 64));
    pair_.drive();
    ASSERT_EQ(pair_.a.hca.sends.size(), 1u);
    EXPECT_EQ(pair_.a.hca.sends[0].status, expected);
  }
  std::uint64_t dropped(Drop drop) {
    return pair_.b.transport.counters().dropped[static_cast<std::size_t>(drop)];
  }

  Pair pair_{kInProcess};
};

TEST_F(KnownPeer, ItsPacketsAreTakenAgain) {
  write_and_drive(WorkStatus::kSuccess);
  EXPECT_EQ(pair_.a.counters.retransmitted_packets, 0u) << "they were acknowledged at once";
}

// IBTA 9.7.4.1.1: packets after a lost one are not executed before it.
TEST_F(KnownPeer, ItsPacketsAreTakenInTheirOrderAlone) {
  pair_.a.fill(0, 4096, 2);
  bool lost = false;
  pair_.script = [&](const wire::IbPacket& packet, bool to_b) {
    const bool write = packet.info().operation == wire::Operation::kRdmaWrite;
    return to_b && write && !std::exchange(lost, true) ? Fate::kLose : Fate::kDeliver;
  };
  for (unsigned i = 0; i != 3; ++i) pair_.a.post(*pair_.qa, write(i * 64, 8192 + i * 64, 64));
  pair_.drive();
  EXPECT_TRUE(lost);
  EXPECT_GT(pair_.b.counters.out_of_sequence, 0u);
  EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(8192), 192), 0);
}

// IBTA 9.6.1: the port drops packets to an address that it no longer has.
TEST_F(KnownPeer, PacketsToAnAddressThatIsGoneAreNotTaken) {
  const auto before = pair_.b.transport.counters().rx_packets;
  pair_.b.transport.gids().clear(0);
  write_and_drive(WorkStatus::kTransportRetryExceeded);
  EXPECT_EQ(pair_.b.transport.counters().rx_packets, before);
}

// IBTA 9.6.1.5: the source must be that of the QP's current path.
TEST_F(KnownPeer, PacketsOfAPeerThatIsItNoLongerAreDropped) {
  auto attributes = pair_.attributes_for(pair_.b, pair_.a, pair_.qa->qpn());
  attributes.path.dst_gid.bytes[15] ^= std::byte{1};
  Pair::change_drained(pair_.b, *pair_.qb, attributes);
  EXPECT_EQ(dropped(Drop::kSource), 0u);
  write_and_drive(WorkStatus::kTransportRetryExceeded);
  EXPECT_GT(dropped(Drop::kSource), 0u);
}

// IBTA 10.3.1.1: a QP in RESET drops packets, even those of its peer.
TEST_F(KnownPeer, AQpInResetGetsNothing) {
  EXPECT_TRUE(pair_.b.transport.modify(*pair_.qb, QpState::kReset, {}));
  write_and_drive(WorkStatus::kTransportRetryExceeded);
  EXPECT_GT(dropped(Drop::kQpState), 0u);
}

// IBTA 9.9.3: the QP's own rights are checked in addition to the key's, even on the fast path.
TEST_F(KnownPeer, MayNotWriteWhereTheQpForbidsIt) {
  auto attributes = pair_.attributes_for(pair_.b, pair_.a, pair_.qa->qpn());
  attributes.access_flags.remote_write = false;
  Pair::change_drained(pair_.b, *pair_.qb, attributes);
  pair_.b.post_receive(*pair_.qb, {End::sge(0, 64)});
  pair_.a.post(*pair_.qa, send(0, 64));
  pair_.drive();  // b caches the headers again from here on
  write_and_drive(WorkStatus::kRemoteInvalidRequest);
}

// IBTA 9.7.5.1.2: one acknowledgement may cover all requests that have arrived before it.
TEST_F(KnownPeer, IsAcknowledgedOnceForWhatArrivesTogether) {
  for (const bool last : {false, true}) {
    pair_.b.queued = last ? 1 : 2;
    const auto before = pair_.b.transmitted;
    for (unsigned i = 0; i != 3; ++i) pair_.a.post(*pair_.qa, write(i * 64, 8192 + i * 64, 64));
    pair_.drive();
    EXPECT_EQ(pair_.b.transmitted - before, last ? 3u : 1u)
        << "and if no other packet waits, nothing more can come that it would stand for";
  }
  EXPECT_EQ(pair_.a.hca.sends.size(), 7u);
}

// IBTA 9.7.5.1: answers leave in the order of their requests.
TEST_F(KnownPeer, IsAcknowledgedAfterTheReadsThatWaitForTheirAnswer) {
  pair_.b.queued = 1;
  pair_.a.hca.sends.clear();
  pair_.a.post(*pair_.qa, read(0, 8192, 4096));
  pair_.a.post(*pair_.qa, write(0, 8192, 64));
  pair_.drive();
  ASSERT_EQ(pair_.a.hca.sends.size(), 2u);
  EXPECT_EQ(pair_.a.hca.sends[0].opcode, SendOpcode::kRdmaRead);
  for (const auto& done : pair_.a.hca.sends) EXPECT_EQ(done.status, WorkStatus::kSuccess);
  EXPECT_EQ(pair_.a.counters.implied_nak_seq_err, 0u);
}

// IBTA 9.7.5.1.1: the next acknowledgement covers a lost one.
TEST_F(KnownPeer, AnAcknowledgementStandsForAllBeforeItAndForNoMore) {
  pair_.a.hca.sends.clear();
  pair_.b.queued = 1;
  unsigned acknowledgements = 0;
  pair_.script = [&](const wire::IbPacket& packet, bool to_b) {
    const bool ack = !to_b && packet.info().operation == wire::Operation::kAcknowledge;
    if (!ack) return Fate::kDeliver;
    return ++acknowledgements == 1 ? Fate::kLose : Fate::kDeliver;
  };
  for (unsigned i = 0; i != 2; ++i) pair_.a.post(*pair_.qa, write(i * 64, 8192 + i * 64, 64));
  pair_.drive();
  EXPECT_EQ(pair_.a.hca.sends.size(), 2u);
  EXPECT_EQ(pair_.a.counters.local_ack_timeout_err, 0u);
  // The last acknowledgement is lost, so its request stays open until it is sent again.
  acknowledgements = 0;
  write_and_drive(WorkStatus::kSuccess);
  EXPECT_EQ(pair_.a.counters.local_ack_timeout_err, 1u);
}

TEST_F(KnownPeer, AnAcknowledgementOfTheFirstLeavesTheSecondOpen) {
  pair_.a.fill(0, 4096, 4);
  pair_.b.queued = 1;
  unsigned writes = 0;
  pair_.script = [&](const wire::IbPacket& packet, bool to_b) {
    const bool write = to_b && packet.info().operation == wire::Operation::kRdmaWrite;
    return write && ++writes == 2 ? Fate::kLose : Fate::kDeliver;
  };
  for (unsigned i = 0; i != 2; ++i) pair_.a.post(*pair_.qa, write(i * 64, 8192 + i * 64, 64));
  pair_.drive();
  EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(8192), 128), 0);
  EXPECT_EQ(pair_.a.counters.local_ack_timeout_err, 1u);
}

// IBTA 9.7.5.1.1: an acknowledgement of a request after a READ shows that the READ response was
// lost.
TEST_F(KnownPeer, AnAcknowledgementBringsNoDataOfARead) {
  pair_.b.fill(65536, 4096, 5);
  bool lost = false;
  pair_.script = [&](const wire::IbPacket& packet, bool to_b) {
    const bool data = !to_b && packet.info().operation == wire::Operation::kRdmaReadResponse;
    return data && !std::exchange(lost, true) ? Fate::kLose : Fate::kDeliver;
  };
  pair_.a.post(*pair_.qa, read(0, 65536, 256));
  pair_.a.post(*pair_.qa, write(4096, 8192, 64));
  pair_.drive();
  EXPECT_TRUE(lost);
  EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(65536), 256), 0);
  EXPECT_EQ(pair_.a.counters.implied_nak_seq_err, 1u);
}

/// A one-packet message caches the source of its payload.
class PayloadOfTheRequestBefore : public KnownPeer {
 protected:
  PayloadOfTheRequestBefore() { write_and_drive(WorkStatus::kSuccess); }
  MemoryKey& key() { return *pair_.a.keys.find(kKey); }
};

TEST_F(PayloadOfTheRequestBefore, IsReadAsFarAsTheKeyReaches) {
  pair_.a.hca.sends.clear();
  pair_.a.post(*pair_.qa, write(kMemorySize - 64, 8192, 64));
  pair_.a.post(*pair_.qa, write(kMemorySize - 63, 8192, 64));
  pair_.drive();
  ASSERT_EQ(pair_.a.hca.sends.size(), 2u);
  EXPECT_EQ(pair_.a.hca.sends[0].status, WorkStatus::kSuccess);
  EXPECT_EQ(pair_.a.hca.sends[1].status, WorkStatus::kLocalProtection);
}

TEST_F(PayloadOfTheRequestBefore, IsRefusedWhenItsKeyIsDeregistered) {
  pair_.a.keys.erase_index(pair_.a.keys.shape().index(kKey));
  write_and_drive(WorkStatus::kLocalProtection);
}

TEST_F(PayloadOfTheRequestBefore, IsRefusedWhenItsKeyIsInvalidated) {
  key().set_free(true);
  write_and_drive(WorkStatus::kLocalProtection);
}

TEST_F(PayloadOfTheRequestBefore, IsRefusedToAQpOfAnotherPd) {
  auto attributes = pair_.attributes_for(pair_.a, pair_.b, pair_.qb->qpn());
  attributes.pd = Pd(kPd.value() + 1);
  Pair::change_drained(pair_.a, *pair_.qa, attributes);
  write_and_drive(WorkStatus::kLocalProtection);
}

TEST_F(PayloadOfTheRequestBefore, IsWhatItsMemoryHoldsNow) {
  for (unsigned seed = 10; seed != 13; ++seed) {
    pair_.a.fill(0, 4096, seed);
    write_and_drive(WorkStatus::kSuccess);
    EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(8192), 64), 0);
  }
}

/// A one-packet WRITE caches its destination.
class WindowOfAWrite : public KnownPeer {
 protected:
  WindowOfAWrite() { write_and_drive(WorkStatus::kSuccess); }
  MemoryKey& key() { return *pair_.b.keys.find(kKey); }
  void change_to(const MemoryKey::Attributes& attributes) {
    pair_.b.keys.change(key(), [&] { key().set_attributes(attributes); });
  }
};

TEST_F(WindowOfAWrite, ReachesAsFarAsTheMemoryOfTheKey) {
  for (const std::uint64_t at : {std::uint64_t{0}, kMemorySize - 64}) {
    pair_.a.fill(0, 64, 3);
    pair_.a.hca.sends.clear();
    pair_.a.post(*pair_.qa, write(0, at, 64));
    pair_.drive();
    EXPECT_EQ(pair_.a.hca.sends[0].status, WorkStatus::kSuccess);
    EXPECT_EQ(std::memcmp(pair_.a.at(0), pair_.b.at(at), 64), 0);
  }
  pair_.a.hca.sends.clear();
  pair_.a.post(*pair_.qa, write(0, kMemorySize - 63, 64));
  pair_.drive();
  EXPECT_EQ(pair_.a.hca.sends[0].status, WorkStatus::kRemoteAccess);
}

TEST_F(WindowOfAWrite, IsClosedWhenTheKeyIsDeregistered) {
  pair_.b.keys.erase_index(pair_.b.keys.shape().index(kKey));
  write_and_drive(WorkStatus::kRemoteAccess);
}

TEST_F(WindowOfAWrite, IsClosedWhenTheKeyIsInvalidated) {
  key().set_free(true);
  write_and_drive(WorkStatus::kRemoteAccess);
}

TEST_F(WindowOfAWrite, IsClosedWhenTheKeyLosesTheRight) {
  auto attributes = key().attributes();
  attributes.access = kRemoteRead;
  change_to(attributes);
  write_and_drive(WorkStatus::kRemoteAccess);
}

TEST_F(WindowOfAWrite, IsClosedWhenTheKeyBeginsElsewhere) {
  auto attributes = key().attributes();
  attributes.length = 4096;
  change_to(attributes);
  write_and_drive(WorkStatus::kRemoteAccess);
}

TEST_F(WindowOfAWrite, IsClosedToAQpOfAnotherPd) {
  auto attributes = pair_.attributes_for(pair_.b, pair_.a, pair_.qa->qpn());
  attributes.pd = Pd(kPd.value() + 1);
  Pair::change_drained(pair_.b, *pair_.qb, attributes);
  pair_.b.post_receive(*pair_.qb, {});
  pair_.a.post(*pair_.qa, send(0, 0));
  pair_.drive();  // b caches the headers again from here on
  write_and_drive(WorkStatus::kRemoteAccess);
}

TEST_F(WindowOfAWrite, IsClosedToAnotherVariantOfTheKey) {
  auto other = write(0, 8192, 64);
  other.rkey = MKey(kKey.value() ^ 1);
  pair_.a.hca.sends.clear();
  pair_.a.post(*pair_.qa, other);
  pair_.drive();
  EXPECT_EQ(pair_.a.hca.sends[0].status, WorkStatus::kRemoteAccess);
}

TEST_F(WindowOfAWrite, IsClosedWhenTheHostTakesTheMemoryAway) {
  ASSERT_TRUE(pair_.b.dma.unmap(kMemoryIova, kMemorySize));
  write_and_drive(WorkStatus::kRemoteOperation);
}

// A request posted later is fetched when its doorbell rings, not before.
TEST_F(KnownPeer, ItsNextRequestIsFetchedWhenTheDoorbellRings) {
  pair_.a.hca.sends_posted[pair_.qa->qpn()].push_back(write(0, 8192, 64));
  pair_.a.hca.sends.clear();
  pair_.b.post(*pair_.qb, write(0, 4096, 64));  // gives the QP other work
  pair_.drive();
  EXPECT_TRUE(pair_.a.hca.sends.empty());
  pair_.a.transport.doorbell_send(*pair_.qa);
  pair_.drive();
  EXPECT_EQ(pair_.a.hca.sends.size(), 1u);
}

/// A WRITE with more packets than may be in flight. Some have arrived when the test changes the
/// key.
class KeyOfAMessage : public ::testing::TestWithParam<bool> {
 protected:
  KeyOfAMessage() {
    pair_.adjust = [](QpAttributes& attributes) { attributes.path_mtu = 256; };
    pair_.a.fill(0, kLength, 1);
    pair_.connect();
    const auto first = pair_.qb->next_receive_psn();
    pair_.a.post(*pair_.qa, write(0, 1 << 20, kLength));
    while (pair_.qb->next_receive_psn() == first && pair_.step()) {
    }
    const auto arrived = wire::Psn(pair_.qb->next_receive_psn()) - wire::Psn(first);
    EXPECT_LT(arrived, static_cast<std::int32_t>(kLength / 256));
  }
  void expect_refused() {
    pair_.drive();
    ASSERT_EQ(pair_.a.hca.sends.size(), 1u);
    EXPECT_EQ(pair_.a.hca.sends[0].status, WorkStatus::kRemoteAccess);
  }

  static constexpr std::uint32_t kLength = 600 * 256;
  Pair pair_{WireOptions{.trains = GetParam()}};
};

TEST_P(KeyOfAMessage, ADeregisteredKeyIsMissedByTheNextPacket) {
  pair_.b.keys.erase_index(pair_.b.keys.shape().index(kKey));
  expect_refused();
}

TEST_P(KeyOfAMessage, AnInvalidatedKeyIsRefusedToTheNextPacket) {
  pair_.b.keys.find(kKey)->set_free(true);
  expect_refused();
}

TEST_P(KeyOfAMessage, AnotherKeyWithItsNumberIsNotTakenForIt) {
  auto attributes = pair_.b.keys.find(kKey)->attributes();
  pair_.b.keys.erase_index(pair_.b.keys.shape().index(kKey));
  attributes.length = 4096;
  attributes.pages = {kMemoryIova};
  pair_.b.keys.insert(attributes);
  expect_refused();
}

INSTANTIATE_TEST_SUITE_P(Ways, KeyOfAMessage, ::testing::Bool());

}  // namespace
}  // namespace softhca::rdma::test
