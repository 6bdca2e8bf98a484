// RC without faults: atomics, ordering, windows.
#include <gtest/gtest.h>

#include <array>

#include "rdma/rc_bytes.h"

namespace softhca::rdma::test {
namespace {

TEST_F(Rc, FetchAddReturnsTheOldValueAndAdds) {
  pair.b.store64(64, 40);
  pair.a.post(*pair.qa, fetch_add(8, 64, 2));
  pair.drive();
  EXPECT_EQ(pair.a.load64(8), 40u);
  EXPECT_EQ(pair.b.load64(64), 42u);
  EXPECT_EQ(pair.a.hca.sends.at(0).byte_count, 8u);
  EXPECT_EQ(pair.b.counters.rx_atomic_requests, 1u);
}

TEST_F(Rc, CompareSwapSwapsOnlyWhatCompares) {
  pair.b.store64(64, 40);
  pair.a.post(*pair.qa, compare_swap(8, 64, 41, 1));
  pair.a.post(*pair.qa, compare_swap(16, 64, 40, 99));
  pair.drive();
  EXPECT_EQ(pair.a.load64(8), 40u);
  EXPECT_EQ(pair.a.load64(16), 40u);
  EXPECT_EQ(pair.b.load64(64), 99u);
}

// One packet each way: the answer is the requested acknowledgement.
TEST_F(Rc, ReadsAndAtomicsAskForTheirAnswer) {
  for (const auto& request : {read(8, 64, 8), fetch_add(8, 64, 1)}) {
    pair.keep_sent = true;
    pair.sent.clear();
    pair.a.post(*pair.qa, request);
    pair.drive();
    ASSERT_EQ(pair.sent.size(), 2u);
    EXPECT_TRUE(pair.sent[0].packet.bth.ack_req);
  }
}

// Peers may mark a plain WRITE as solicited. It takes no receive, so nothing can raise the event.
TEST_F(Rc, ASolicitedWriteCompletesNothing) {
  pair.keep_sent = true;
  pair.b.post_receive(*pair.qb, {End::sge(0x1000, 100)});
  auto request = write(0, 64, 8);
  request.solicited = true;
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_FALSE(pair.sent.empty());
  EXPECT_TRUE(pair.sent[0].packet.bth.solicited_event);
  EXPECT_EQ(pair.a.hca.sends.size(), 1u);
  EXPECT_TRUE(pair.b.hca.receives.empty());
  EXPECT_TRUE(pair.b.hca.events.empty());
}

TEST_F(Rc, SignaledRequestsCompleteInPostingOrderAcrossOperations) {
  std::vector<std::uint32_t> signaled;
  for (int i = 0; i < 200; ++i) {
    auto request = i % 4 == 0   ? read(0x20000, 0x20000, 3000)
                   : i % 4 == 1 ? write(0x20000, 0x30000, 5000)
                   : i % 4 == 2 ? fetch_add(8, 64, 1)
                                : write(0x20000, 0x30000, 0);
    request.signaled = i % 3 == 0;
    if (request.signaled) signaled.push_back(request.cookie);
    pair.a.post(*pair.qa, request);
  }
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.size(), signaled.size());
  for (std::size_t i = 0; i < signaled.size(); ++i) {
    EXPECT_EQ(pair.a.hca.sends[i].cookie, signaled[i]);
  }
}

// IBTA 17.2.8.1: a connection with one path is in Migrated, and its packets say so. Without an
// alternate path it ignores the MigReq bit of its peer's packets.
TEST_F(Rc, PacketsSayMigratedAndAreTakenWhateverThePeersSay) {
  pair.keep_sent = true;
  const auto exchange = [&] {
    pair.a.post(*pair.qa, write(kHere, kThere, 3000));
    pair.a.post(*pair.qa, read(kHere, kThere, 3000));
    pair.a.post(*pair.qa, fetch_add(0x20000, 0x20000, 1));
    pair.drive();
  };
  exchange();
  ASSERT_GE(pair.sent.size(), 9u);
  for (const auto& sent : pair.sent) {
    EXPECT_TRUE(sent.packet.bth.mig_req) << sent.packet.info().name;
  }
  // The ICRC is computed later, so MigReq can be changed here.
  constexpr std::size_t kMigReqByte = 14 + 20 + 8 + 1;
  for (auto* end : {&pair.a, &pair.b}) {
    end->on_transmit = [through = end->on_transmit](End& from, const wire::Frame& frame) {
      auto changed = frame;
      changed.mutable_head()[kMigReqByte] ^= std::byte{0x40};
      through(from, changed);
    };
  }
  pair.sent.clear();
  exchange();
  EXPECT_FALSE(pair.sent.at(0).packet.bth.mig_req);
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(6, WorkStatus::kSuccess));
}

TEST_F(Rc, OutstandingReadsStayWithinMaxRdAtomic) {
  unsigned outstanding = 0, most = 0;
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    if (to_b && packet.info().operation == wire::Operation::kRdmaReadRequest) {
      most = std::max(most, ++outstanding);
    }
    if (!to_b && packet.info().operation == wire::Operation::kRdmaReadResponse &&
        packet.info().last) {
      --outstanding;
    }
    return Fate::kDeliver;
  };
  for (int i = 0; i < 20; ++i) pair.a.post(*pair.qa, read(0x20000, 0x20000, 10));
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 20u);
  EXPECT_EQ(most, 4u);
}

TEST_F(Rc, FenceWaitsForEarlierReads) {
  bool read_done = false, write_before = false;
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    if (!to_b && packet.info().operation == wire::Operation::kRdmaReadResponse) read_done = true;
    if (to_b && packet.info().operation == wire::Operation::kRdmaWrite) write_before = !read_done;
    return Fate::kDeliver;
  };
  pair.a.post(*pair.qa, read(0x20000, 0x20000, 10));
  auto fenced = write(0x20000, 0x30000, 10);
  fenced.fence = true;
  pair.a.post(*pair.qa, fenced);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 2u);
  EXPECT_FALSE(write_before);
}

TEST_F(Rc, WindowBoundsPacketsInFlight) {
  std::int64_t in_flight = 0, most = 0;
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    if (to_b) {
      most = std::max(most, ++in_flight);
    } else {
      in_flight = 0;
      (void)packet;
    }
    return Fate::kDeliver;
  };
  pair.a.post(*pair.qa, write(0, 0, 4u << 20));
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector{WorkStatus::kSuccess});
  EXPECT_LE(most, 256 + 64);
  EXPECT_TRUE(same(pair.a, 0, pair.b, 0, 4u << 20));
}

TEST_F(Rc, OneAcknowledgementAnswersABatch) {
  unsigned acknowledgements = 0;
  pair.script = [&](const wire::IbPacket&, bool to_b) {
    acknowledgements += !to_b;
    return Fate::kDeliver;
  };
  for (int i = 0; i < 100; ++i) pair.a.post(*pair.qa, write(0x1000, 0x2000, 8));
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 100u);
  EXPECT_LE(acknowledgements, 3u);
}

TEST_F(Rc, BothDirectionsWorkAtTheSameTime) {
  for (int i = 0; i < 50; ++i) {
    pair.a.post(*pair.qa, write(0x10000, 0x20000, 9000));
    pair.b.post(*pair.qb, read(0x30000, 0x10000, 9000));
  }
  pair.drive();
  EXPECT_TRUE(same(pair.a, 0x10000, pair.b, 0x20000, 9000));
  EXPECT_TRUE(same(pair.a, 0x10000, pair.b, 0x30000, 9000));
  EXPECT_EQ(pair.b.hca.sends.size(), 50u);
}

TEST_F(Rc, LocalOperationsRunInTheirTurnAndOnce) {
  SendRequest local;
  local.opcode = SendOpcode::kLocal;
  local.cookie = 5;
  local.signaled = true;
  SendRequest nop;
  nop.cookie = 6;
  nop.signaled = true;
  pair.a.post(*pair.qa, write(0, 0, 10));
  pair.a.post(*pair.qa, local);
  pair.a.post(*pair.qa, nop);
  pair.a.post(*pair.qa, write(0, 0, 10));
  pair.drive();
  EXPECT_EQ(pair.a.hca.executed, std::vector<std::uint32_t>{5});
  EXPECT_EQ(pair.a.hca.sends.size(), 4u);
  EXPECT_EQ(pair.a.hca.sends.at(1).cookie, 5u);
  EXPECT_EQ(pair.a.hca.sends.at(2).cookie, 6u);
}

TEST_F(Rc, InspectionNamesStateAndSequence) {
  pair.a.post(*pair.qa, write(0, 0, 10));
  pair.drive();
  const auto text = pair.a.transport.inspect();
  for (const auto* line : {"qp 0x11:", "type: RC", "state: RTS", "next_send_psn: 0xfffff1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

}  // namespace
}  // namespace softhca::rdma::test
