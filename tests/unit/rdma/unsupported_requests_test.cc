// Requests of operations that no device here executes (IBTA 9.9.3, unsupported or reserved opcode).
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "rdma/pair.h"
#include "wire/ib_header.h"

namespace softhca::rdma::test {
namespace {

using wire::Opcode;

/// A packet of `opcode` from a to b's QP, with the PSN that b expects. It has no extended headers.
wire::Frame request_to_b(const Pair& pair, Opcode opcode) {
  wire::IbAddress address;
  address.source_gid = pair.a.gid.gid;
  address.destination_gid = pair.b.gid.gid;
  address.destination_mac = pair.b.gid.mac;
  wire::Bth bth;
  bth.opcode = opcode;
  bth.dest_qp = pair.qb->qpn();
  bth.psn = wire::Psn(pair.qb->next_receive_psn());
  // The device makes no packets of unknown opcodes. SEND has no extended headers either.
  wire::Frame frame;
  wire::IbHeader(address).begin(Opcode::RC_SEND_ONLY, 0, frame).bth = bth;
  return frame;
}

void connect_xrc_target(Pair& pair) {
  const auto attributes = pair.attributes_for(pair.b, pair.a, Qpn(0x11));
  pair.qb = &pair.b.create_qp(Qpn(0x22), QpType::kXrcTarget, attributes,
                              {.has_send_queue = false,
                               .has_receive_queue = false,
                               .xrc_domain = XrcDomain{5},
                               .counters = &pair.b.counters});
  Pair::to_rts(pair.b, *pair.qb, attributes);
}

class UnsupportedRequests : public ::testing::TestWithParam<Opcode> {};

TEST_P(UnsupportedRequests, AreInvalid) {
  Pair pair;
  if (wire::info(GetParam()).service == wire::Service::XRC) {
    connect_xrc_target(pair);
  } else {
    pair.connect();
  }
  EXPECT_TRUE(pair.b.transport.handle_frame(request_to_b(pair, GetParam()), pair.now));
  pair.keep_sent = true;
  pair.drive();
  ASSERT_EQ(pair.sent.size(), 1u);
  const auto& aeth = pair.sent[0].packet.ext.aeth;
  EXPECT_EQ(aeth.type, wire::AethType::NAK);
  EXPECT_EQ(aeth.nak_code(), wire::NakCode::INVALID_REQUEST);
  EXPECT_EQ(pair.b.hca.count(QpEvent::kInvalidRequest), 1u);
  EXPECT_EQ(pair.qb->state(), QpState::kError);
}
// soft-RoCE sends them.
INSTANTIATE_TEST_SUITE_P(OfSoftRoce, UnsupportedRequests,
                         ::testing::Values(Opcode::RC_FLUSH, Opcode::RC_ATOMIC_WRITE));
// IBTA 9.2.1 Table 38: the codes between and behind the operations of a service.
INSTANTIATE_TEST_SUITE_P(ReservedInRc, UnsupportedRequests,
                         ::testing::Values(Opcode(0x15), Opcode(0x18), Opcode(0x1f)));
INSTANTIATE_TEST_SUITE_P(ReservedInXrc, UnsupportedRequests,
                         ::testing::Values(Opcode(0xb5), Opcode(0xb8), Opcode(0xbf)));

// IBTA 9.9.3: an unreliable responder drops what it does not know, and the QP goes on.
TEST(UnsupportedUnreliableRequests, AreDroppedSilently) {
  Pair pair;
  pair.connect(QpType::kUc);
  pair.keep_sent = true;
  const auto known = request_to_b(pair, Opcode::UC_SEND_ONLY);
  for (const auto opcode : {0x2c, 0x33, 0x3f}) {
    std::vector<std::byte> bytes(known.size());
    known.copy_to(bytes);
    constexpr std::size_t kBth = 14 + 20 + 8;
    ASSERT_EQ(bytes[kBth], std::byte(Opcode::UC_SEND_ONLY));
    bytes[kBth] = std::byte(opcode);
    EXPECT_FALSE(pair.b.transport.handle_frame(wire::Frame::from_bytes(bytes), pair.now));
  }
  pair.drive();
  EXPECT_TRUE(pair.sent.empty());
  EXPECT_TRUE(pair.b.hca.events.empty());
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
}

}  // namespace
}  // namespace softhca::rdma::test
