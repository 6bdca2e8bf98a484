// RC: every operation at every path MTU, with content and completions checked.
#include <gtest/gtest.h>

#include "rdma/rc_bytes.h"

namespace softhca::rdma::test {
namespace {

class RcAtMtu : public ::testing::TestWithParam<std::tuple<std::uint32_t, std::uint32_t>> {
 protected:
  RcAtMtu() {
    pair.adjust = [](QpAttributes& attributes) { attributes.path_mtu = mtu(); };
    pair.connect();
    pair.a.fill(0, 0x40000, 1);
    pair.b.fill(0, 0x40000, 2);
  }
  static std::uint32_t mtu() { return std::get<0>(GetParam()); }
  static std::uint32_t length() { return std::get<1>(GetParam()); }

  void expect_sent(const SendRequest& request) {
    ASSERT_EQ(pair.a.hca.sends.size(), 1u);
    EXPECT_EQ(pair.a.hca.sends[0].status, WorkStatus::kSuccess)
        << describe(pair.a.hca.sends[0].reason).text;
    EXPECT_EQ(pair.a.hca.sends[0].cookie, request.cookie);
    EXPECT_EQ(pair.a.hca.sends[0].opcode, request.opcode);
    EXPECT_TRUE(pair.a.hca.sends[0].signaled);
  }
  ReceiveCompletion received() {
    EXPECT_EQ(pair.b.hca.receives.size(), 1u);
    return pair.b.hca.receives.empty() ? ReceiveCompletion{} : pair.b.hca.receives[0].completion;
  }

  Pair pair;
};

TEST_P(RcAtMtu, SendArrivesInTheReceiveBuffer) {
  pair.b.post_receive(*pair.qb, {End::sge(kThere, length() + 5)}, 77);
  const auto request = send(kHere, length());
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_EQ(received().status, WorkStatus::kSuccess);
  EXPECT_EQ(received().opcode, ReceiveOpcode::kSend);
  EXPECT_EQ(received().byte_count, length());
  EXPECT_EQ(received().cookie, 77u);
  EXPECT_FALSE(received().solicited);
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, length()));
}

TEST_P(RcAtMtu, SendWithImmediateBringsItsImmediate) {
  pair.b.post_receive(*pair.qb, {End::sge(kThere, length())});
  auto request = send(kHere, length());
  request.opcode = SendOpcode::kSendWithImmediate;
  request.immediate = 0xCAFEF00D;
  request.solicited = true;
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_EQ(received().opcode, ReceiveOpcode::kSendWithImmediate);
  EXPECT_EQ(received().immediate, 0xCAFEF00D);
  EXPECT_TRUE(received().solicited);
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, length()));
}

TEST_P(RcAtMtu, SendWithInvalidateFreesTheKey) {
  const MKey victim{0x300};
  MemoryKey::Attributes key;
  key.key = victim;
  key.pd = kPd;
  key.invalidatable = true;
  pair.b.keys.insert(key);
  pair.b.post_receive(*pair.qb, {End::sge(kThere, length())});
  auto request = send(kHere, length());
  request.opcode = SendOpcode::kSendWithInvalidate;
  request.immediate = victim.value();
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_EQ(received().opcode, ReceiveOpcode::kSendWithInvalidate);
  EXPECT_EQ(received().immediate, victim.value());
  EXPECT_TRUE(pair.b.keys.find(victim)->is_free());
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, length()));
}

TEST_P(RcAtMtu, RdmaWriteNeedsNoReceiveRequest) {
  const auto request = write(kHere, kThere, length());
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_TRUE(pair.b.hca.receives.empty());
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, length()));
  EXPECT_EQ(pair.b.counters.rx_write_requests, 1u);
}

TEST_P(RcAtMtu, RdmaWriteWithImmediateConsumesAReceiveRequest) {
  pair.b.post_receive(*pair.qb, {}, 78);
  auto request = write(kHere, kThere, length());
  request.opcode = SendOpcode::kRdmaWriteWithImmediate;
  request.immediate = 0x01020304;
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_EQ(received().opcode, ReceiveOpcode::kRdmaWriteWithImmediate);
  EXPECT_EQ(received().immediate, 0x01020304u);
  EXPECT_EQ(received().byte_count, length());
  EXPECT_EQ(received().cookie, 78u);
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, length()));
}

TEST_P(RcAtMtu, RdmaReadBringsTheRemoteBytes) {
  const auto request = read(kHere, kThere, length());
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_EQ(pair.a.hca.sends[0].byte_count, length());
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, length()));
  EXPECT_EQ(pair.b.counters.rx_read_requests, 1u);
}

TEST_P(RcAtMtu, PiecesOfBothSidesMayDifferInNumberAndSize) {
  const auto third = length() / 3;
  auto request = send(kHere, third);
  request.sges.push_back(End::sge(kHere + third, 0));
  request.sges.push_back(End::sge(kHere + third, length() - third));
  pair.b.post_receive(*pair.qb, {End::sge(kThere, length() / 2),
                                 End::sge(kThere + length() / 2, length() - length() / 2)});
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_EQ(received().byte_count, length());
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, length()));
}

TEST_P(RcAtMtu, InlineDataNeedNoKey) {
  const auto size = std::min(length(), 1024u);  // the maximum inline data of all devices
  auto request = write(kHere, kThere, 0);
  request.is_inline = true;
  request.sges.clear();
  request.inline_data.assign({pair.a.at(kHere), size});
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, size));
}

TEST_P(RcAtMtu, InlineDataMayStandBetweenPointersAndAtTheEnds) {
  const auto total = length();
  const auto piece = std::min(total / 4, 300u);
  auto request = write(kHere, kThere, 0);
  auto& data = request.inline_data;
  request.sges.clear();
  std::uint32_t at = 0;
  const auto add_inline = [&] {
    request.sges.push_back(
        {.address = data.size(), .length = piece, .lkey = MKey(0xBAD), .is_inline = true});
    data.append({pair.a.at(kHere + at), piece});
    at += piece;
  };
  add_inline();
  request.sges.push_back(End::sge(kHere + at, piece));
  at += piece;
  add_inline();
  request.sges.push_back(End::sge(kHere + at, total - at - piece));
  at = total - piece;
  add_inline();
  pair.a.post(*pair.qa, request);
  pair.drive();
  expect_sent(request);
  EXPECT_TRUE(same(pair.a, kHere, pair.b, kThere, total));
}

INSTANTIATE_TEST_SUITE_P(All, RcAtMtu,
                         ::testing::Combine(::testing::Values(256u, 512u, 1024u, 2048u, 4096u),
                                            ::testing::Values(0u, 1u, 3u, 8u, 255u, 256u, 257u,
                                                              1024u, 4096u, 4097u, 70001u)),
                         [](const auto& test) {
                           return "Mtu" + std::to_string(std::get<0>(test.param)) + "Length" +
                                  std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace softhca::rdma::test
