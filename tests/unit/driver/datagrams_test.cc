// Unreliable datagrams between two devices, through the driver (IBTA 9.8.3).
#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "driver/connectx/datagram.h"
#include "driver/world.h"
#include "wire/ipv4.h"

namespace softhca::driver::test {
namespace {

using connectx::AddressVector;
using connectx::QueuePair;

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::size_t kHeader = softhca::spec::infiniband::kGrhBytes;
constexpr std::size_t kInlineMax = 200;
constexpr unsigned kRequests = 4;

class Datagrams : public ::testing::Test {
 protected:
  Datagrams() {
    world_.open();
    a_ = std::make_unique<Endpoint>(world_.a());
    b_ = std::make_unique<Endpoint>(world_.b());
    from_ = make(*a_);
    to_ = make(*b_);
    must(from_->activate(kQkey));
    must(to_->activate(kQkey));
  }
  static std::unique_ptr<QueuePair> make(Endpoint& e) {
    return must(QueuePair::create(
        *e.pd, {.send_cq = *e.send_cq,
                .receive_cq = *e.receive_cq,
                .send = {.requests = kRequests, .pieces = 2, .inline_size = kInlineMax},
                .receive = {.requests = kRequests, .pieces = 1},
                .service = softhca::spec::connectx::service_type::UD}));
  }
  AddressVector way_to_b() const {
    return AddressVector({.gid = world_.b().gid, .mac = world_.b().mac});
  }
  void receive(std::uint64_t id, std::size_t offset, std::size_t length) {
    const auto piece = b_->piece(offset, length);
    ASSERT_EQ(to_->post_receive({.id = id, .pieces = {&piece, 1}}), PostStatus::kOk);
  }
  std::optional<Completion> next(connectx::CompletionQueue& cq) {
    std::array<Completion, 1> done;
    const bool there = world_.run_until([&] { return cq.poll(done) != 0; });
    return there ? std::optional(done[0]) : std::nullopt;
  }
  std::vector<std::byte> arrived(std::size_t offset, std::size_t length) {
    const auto bytes = b_->bytes(offset + kHeader, length);
    return {bytes.begin(), bytes.end()};
  }
  static std::vector<std::byte> pattern(std::size_t length, unsigned seed) {
    std::vector<std::byte> bytes(length);
    for (std::size_t i = 0; i != length; ++i) {
      bytes[i] = static_cast<std::byte>(i * 7 + seed);
    }
    return bytes;
  }

  mutable World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  std::unique_ptr<QueuePair> from_;
  std::unique_ptr<QueuePair> to_;
};

// QUERY_NIC_VPORT_CONTEXT; mlx5_ib reports it as qkey_viol_cntr.
TEST_F(Datagrams, ThoseWithAWrongQkeyAreCountedByTheReceiversPort) {
  receive(1, 0, 1024);
  const auto data = pattern(8, 1);
  std::ranges::copy(data, a_->bytes(0, data.size()).begin());
  const auto piece = a_->piece(0, data.size());
  const auto to = way_to_b();
  for (const auto qkey : {kQkey + 1, kQkey + 2, kQkey}) {
    ASSERT_EQ(from_->post_send({.id = 3,
                                .opcode = SendOpcode::kSend,
                                .pieces = {&piece, 1},
                                .address = &to.form(),
                                .remote_qpn = to_->qpn(),
                                .remote_qkey = qkey}),
              PostStatus::kOk);
  }
  ASSERT_TRUE(next(*b_->receive_cq)) << "the last one is taken";
  EXPECT_EQ(must(world_.b().hca->qkey_violations()), 2u);
  EXPECT_EQ(must(world_.a().hca->qkey_violations()), 0u);
}

TEST_F(Datagrams, AReceiveHasTheIpHeaderInFrontAndReportsTheSender) {
  receive(7, 0, 1024);
  const auto data = pattern(100, 1);
  std::ranges::copy(data, a_->bytes(0, data.size()).begin());
  const auto piece = a_->piece(0, data.size());
  const auto to = way_to_b();
  ASSERT_EQ(from_->post_send({.id = 3,
                              .opcode = SendOpcode::kSendWithImmediate,
                              .pieces = {&piece, 1},
                              .immediate = 0xabcdef01,
                              .address = &to.form(),
                              .remote_qpn = to_->qpn(),
                              .remote_qkey = kQkey}),
            PostStatus::kOk);
  const auto received = next(*b_->receive_cq);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->id, 7u);
  EXPECT_EQ(received->status, WorkStatus::kSuccess);
  EXPECT_EQ(received->byte_count, kHeader + data.size());
  EXPECT_EQ(received->source_qpn, from_->qpn());
  EXPECT_EQ(received->immediate, 0xabcdef01);
  EXPECT_EQ(arrived(0, data.size()), data);
  const util::View<wire::Ipv4Layout> ip(b_->bytes(kHeader - wire::Ipv4Layout::kSize, 20));
  EXPECT_EQ(ip.get(wire::Ipv4Layout::source), util::load_be32(world_.a().gid.bytes.data() + 12));
  const auto sent = next(*a_->send_cq);
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->id, 3u);
  EXPECT_EQ(sent->status, WorkStatus::kSuccess);
}

TEST_F(Datagrams, InlineDataGoAroundTheEndOfTheRing) {
  const auto to = way_to_b();
  for (unsigned i = 0; i != 40; ++i) {
    receive(i, 0, 1024);
    const auto data = pattern(1 + i * 37 % kInlineMax, i);
    ASSERT_EQ(from_->post_send({.id = i,
                                .inline_data = data,
                                .address = &to.form(),
                                .remote_qpn = to_->qpn(),
                                .remote_qkey = kQkey}),
              PostStatus::kOk);
    const auto received = next(*b_->receive_cq);
    ASSERT_TRUE(received);
    EXPECT_EQ(received->byte_count, kHeader + data.size());
    EXPECT_EQ(arrived(0, data.size()), data) << i;
    ASSERT_TRUE(next(*a_->send_cq));
  }
}

// A WQE like the previous one takes the fast path, any other the slow path.
TEST_F(Datagrams, DatagramsOfChangingFormArriveAsTheyWerePosted) {
  auto other = make(*b_);
  must(other->activate(kQkey + 1));
  const auto to = way_to_b();
  std::mt19937 random(3);
  for (unsigned i = 0; i != 2'000; ++i) {
    const bool to_other = i / 50 % 2 == 1 && random() % 8 != 0;
    const bool in_line = i / 100 % 2 == 0;
    const auto& peer = to_other ? *other : *to_;
    const auto room = b_->piece(0, 1024);
    ASSERT_EQ((to_other ? *other : *to_).post_receive({.id = i, .pieces = {&room, 1}}),
              PostStatus::kOk);
    const auto data = pattern(1 + random() % (random() % 4 == 0 ? kInlineMax : 64), i);
    std::ranges::copy(data, a_->bytes(0, data.size()).begin());
    const auto piece = a_->piece(0, data.size());
    SendRequest request{.id = i,
                        .address = &to.form(),
                        .remote_qpn = peer.qpn(),
                        .remote_qkey = to_other ? kQkey + 1 : kQkey};
    if (in_line) {
      request.inline_data = data;
    } else {
      request.pieces = {&piece, 1};
    }
    ASSERT_EQ(from_->post_send(request), PostStatus::kOk);
    const auto received = next(*b_->receive_cq);
    ASSERT_TRUE(received) << i;
    EXPECT_EQ(received->id, i);
    EXPECT_EQ(received->qpn, peer.qpn());
    EXPECT_EQ(received->byte_count, kHeader + data.size());
    EXPECT_EQ(arrived(0, data.size()), data) << i;
    const util::View<wire::Ipv4Layout> ip(b_->bytes(kHeader - wire::Ipv4Layout::kSize, 20));
    const auto pad = (4 - data.size() % 4) % 4;
    EXPECT_EQ(ip.get(wire::Ipv4Layout::total_length), 20u + 8 + 12 + 8 + data.size() + pad + 4);
    EXPECT_TRUE(wire::checksum_of(ip.bytes()) == 0) << i;
    ASSERT_TRUE(next(*a_->send_cq));
  }
}

TEST_F(Datagrams, EachGoesToItsOwnReceiver) {
  auto other = make(*b_);
  must(other->activate(kQkey + 1));
  const auto piece = b_->piece(2048, 1024);
  ASSERT_EQ(other->post_receive({.id = 100, .pieces = {&piece, 1}}), PostStatus::kOk);
  receive(1, 0, 1024);
  receive(2, 1024, 1024);
  const auto to = way_to_b();
  const auto send = [&](const QueuePair& qp, std::uint32_t qkey, unsigned seed) {
    const auto data = pattern(64, seed);
    ASSERT_EQ(from_->post_send({.inline_data = data,
                                .address = &to.form(),
                                .remote_qpn = qp.qpn(),
                                .remote_qkey = qkey}),
              PostStatus::kOk);
  };
  send(*to_, kQkey, 1);
  send(*other, kQkey + 1, 2);
  send(*to_, kQkey, 3);
  const std::array<std::uint64_t, 3> ids = {1, 100, 2};
  for (const auto id : ids) {
    const auto received = next(*b_->receive_cq);
    ASSERT_TRUE(received);
    EXPECT_EQ(received->id, id);
  }
  EXPECT_EQ(arrived(0, 64), pattern(64, 1));
  EXPECT_EQ(arrived(2048, 64), pattern(64, 2));
  EXPECT_EQ(arrived(1024, 64), pattern(64, 3));
}

TEST_F(Datagrams, WithAWrongQkeyItIsDroppedAndWithTheTopBitTheSendersOwnIsSent) {
  receive(1, 0, 1024);
  const auto to = way_to_b();
  const auto data = pattern(8, 0);
  const auto send = [&](std::uint32_t qkey) {
    return from_->post_send({.inline_data = data,
                             .signaled = false,
                             .address = &to.form(),
                             .remote_qpn = to_->qpn(),
                             .remote_qkey = qkey});
  };
  ASSERT_EQ(send(kQkey + 1), PostStatus::kOk);
  world_.advance(std::chrono::milliseconds(1));
  std::array<Completion, 1> done;
  EXPECT_EQ(b_->receive_cq->poll(done), 0u);
  ASSERT_EQ(send(0x80000000), PostStatus::kOk);
  EXPECT_TRUE(next(*b_->receive_cq));
}

TEST_F(Datagrams, PostingSaysWhyItRefuses) {
  const auto to = way_to_b();
  const auto data = pattern(kInlineMax + 1, 0);
  const std::array pieces = {a_->piece(0, 8), a_->piece(8, 8), a_->piece(16, 8)};
  const SendRequest plain{.address = &to.form(), .remote_qpn = to_->qpn(), .remote_qkey = kQkey};
  auto request = plain;
  const auto post = [&](auto&& change) {
    SendRequest changed = plain;
    change(changed);
    return from_->post_send(changed);
  };
  EXPECT_EQ(post([&](auto& r) { r.inline_data = data; }), PostStatus::kInlineTooLong);
  EXPECT_EQ(post([&](auto& r) { r.pieces = pieces; }), PostStatus::kTooManyPieces);
  EXPECT_EQ(post([&](auto& r) {
              r.inline_data = std::span(data).first(8);
              r.pieces = std::span(pieces).first(1);
            }),
            PostStatus::kBadRequest);
  request.inline_data = std::span(data).first(kInlineMax);
  unsigned posted = 0;
  auto status = PostStatus::kOk;
  for (; posted != 100 && status == PostStatus::kOk; ++posted) status = from_->post_send(request);
  EXPECT_GT(posted, kRequests);
  EXPECT_EQ(status, PostStatus::kQueueFull);
  must(from_->to_reset());
  EXPECT_EQ(from_->post_send(request), PostStatus::kWrongState);
}

TEST_F(Datagrams, AReceiveWithoutRoomForItServesTheNext) {
  receive(1, 0, kHeader + 7);
  const auto to = way_to_b();
  for (const std::uint32_t length : {8, 7}) {
    const auto data = pattern(length, 0);
    ASSERT_EQ(from_->post_send({.inline_data = data,
                                .address = &to.form(),
                                .remote_qpn = to_->qpn(),
                                .remote_qkey = kQkey}),
              PostStatus::kOk);
  }
  const auto received = next(*b_->receive_cq);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, WorkStatus::kSuccess);
  EXPECT_EQ(received->byte_count, kHeader + 7);
}

}  // namespace
}  // namespace softhca::driver::test
