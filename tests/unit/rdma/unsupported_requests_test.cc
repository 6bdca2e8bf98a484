// Requests of operations that no device here executes (IBTA 9.9.3, unsupported or reserved opcode).
#include <gtest/gtest.h>

#include "rdma/pair.h"
#include "wire/ib_header.h"

namespace softhca::rdma::test {
namespace {

class UnsupportedRequests : public ::testing::TestWithParam<wire::Opcode> {};

TEST_P(UnsupportedRequests, AreInvalid) {
  Pair pair;
  pair.connect();
  wire::IbAddress address;
  address.source_gid = pair.a.gid.gid;
  address.destination_gid = pair.b.gid.gid;
  address.destination_mac = pair.b.gid.mac;
  wire::Bth bth;
  bth.opcode = GetParam();
  bth.dest_qp = pair.qb->qpn();
  bth.psn = wire::Psn(pair.qb->next_receive_psn());
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, {}, 0, frame);
  EXPECT_TRUE(pair.b.transport.handle_frame(frame, pair.now));
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
                         ::testing::Values(wire::Opcode::RC_FLUSH, wire::Opcode::RC_ATOMIC_WRITE));

}  // namespace
}  // namespace softhca::rdma::test
