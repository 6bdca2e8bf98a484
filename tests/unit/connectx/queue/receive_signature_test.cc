// Signatures of receive WQEs (PRM 7.4.4.3, 9.2.3, Table 23): "The signature covers the entire WQE
// as well as the RQ number and the WQE index corresponding to that WQE. Should result in 0xff."
#include "connectx/queue/receive_signature.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "connectx/ethernet/ethernet_host.h"
#include "connectx/ethernet/frames.h"
#include "connectx/qp/data_path.h"
#include "connectx/queue/receive_wqe.h"
#include "connectx/queue/wqe_fault.h"

namespace softhca::connectx::test {
namespace {

using Send = spec::connectx::wqe_opcode;
using WqeBytes = std::array<std::byte, 64>;

constexpr std::uint32_t kQueue = 0x123456;
constexpr std::uint16_t kIndex = 0xABCD;

/// A WQE with a list of one piece and the end of the list.
WqeBytes unsigned_wqe() {
  WqeBytes wqe{};
  put_piece(&wqe[16], 100, 0x7788, 0x112233445566);
  put_piece(&wqe[32], 0, kEndOfListKey, 0);
  return wqe;
}

TEST(ReceiveSignature, CoversEachByteOfTheStride) {
  auto wqe = unsigned_wqe();
  sign_receive(wqe, kQueue, kIndex);
  EXPECT_TRUE(has_receive_signature(wqe, kQueue, kIndex));
  for (auto& byte : wqe) {
    byte ^= std::byte{0x40};
    EXPECT_FALSE(has_receive_signature(wqe, kQueue, kIndex));
    byte ^= std::byte{0x40};
  }
}

TEST(ReceiveSignature, CoversTheNumberOfTheQueueAndTheIndex) {
  auto wqe = unsigned_wqe();
  sign_receive(wqe, kQueue, kIndex);
  EXPECT_TRUE(has_receive_signature(wqe, kQueue, kIndex));
  for (unsigned shift = 0; shift != 24; shift += 8) {
    EXPECT_FALSE(has_receive_signature(wqe, kQueue ^ 2u << shift, kIndex));
  }
  EXPECT_FALSE(has_receive_signature(wqe, kQueue, kIndex + 1));
  EXPECT_FALSE(has_receive_signature(wqe, kQueue, kIndex ^ 0x200));
}

// libmlx5 signs only the segments that it has written. The end of a short list is not among them.
TEST(ReceiveSignature, MayLeaveOutTheSegmentThatEndsTheList) {
  auto wqe = unsigned_wqe();
  sign_receive(std::span(wqe).first(32), kQueue, kIndex);
  EXPECT_TRUE(has_receive_signature(wqe, kQueue, kIndex));
  wqe[20] ^= std::byte{2};
  EXPECT_FALSE(has_receive_signature(wqe, kQueue, kIndex));
}

class QpReceiveSignature : public RdmaDataPath {
 protected:
  void post(HostQp& qp, std::byte harm = {}) {
    const auto entry = qp.receive_producer & ((1u << qp.options.log_rq) - 1);
    const std::span<std::byte> wqe(host_.at(qp.ring + std::uint64_t{64} * entry), 64);
    std::ranges::fill(wqe, std::byte{});
    put_piece(&wqe[16], 64, RdmaTestHost::kKey, buffer_);
    put_piece(&wqe[32], 0, kEndOfListKey, 0);
    sign_receive(wqe, qp.qpn, qp.receive_producer);
    wqe[63] ^= harm;
    util::store_be32(host_.at(qp.record), ++qp.receive_producer);
  }
  void send_to(HostQp& from) {
    auto bytes = wqe(from, Send::SEND).unsignaled().inline_data("signed").bytes();
    std::uint32_t sum = 0xFF;
    for (const auto byte : bytes) sum ^= std::to_integer<std::uint32_t>(byte);
    using Ctrl = spec::connectx::wqe_ctrl_segment;
    util::MutableView<Ctrl>(std::span(bytes)).set(Ctrl::signature, sum);
    host_.post_send(from, bytes);
    host_.ring_send(from);
    host_.run();
  }

  pcie::Iova buffer_ = host_.allocate(64, 64);
};

TEST_F(QpReceiveSignature, TheSignatureOfAQpThatRequestsOneIsChecked) {
  auto [a, b] = host_.connected({.wq_signature = true});
  for (int i = 0; i != 20; ++i) {  // more than the queue has entries
    post(b);
    send_to(a);
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].opcode, CqeOpcode::RESPONDER_SEND);
    EXPECT_EQ(cqes[0].wqe_counter, i);
  }
  EXPECT_EQ(host_.text(buffer_, 6), "signed");
}

TEST_F(QpReceiveSignature, WrongOneEndsTheQpAndThePeerIsNotified) {
  auto [a, b] = host_.connected({.wq_signature = true});
  post(b, std::byte{1});
  send_to(a);
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  const auto& receive = cqes[cqes[0].opcode == CqeOpcode::RESPONDER_ERROR ? 0 : 1];
  const auto& sent = cqes[cqes[0].opcode == CqeOpcode::RESPONDER_ERROR ? 1 : 0];
  EXPECT_EQ(receive.opcode, CqeOpcode::RESPONDER_ERROR);
  EXPECT_EQ(receive.syndrome, Syndrome::LOCAL_QP_OPERATION_ERROR);
  EXPECT_EQ(WqeFault(receive.reason), WqeFault::kReceiveSignature);
  EXPECT_EQ(sent.syndrome, Syndrome::REMOTE_OPERATION_ERROR);
  EXPECT_EQ(host_.query_state(b), state(spec::connectx::qp_state::ERR));
}

class RqReceiveSignature : public ::testing::Test {
 protected:
  RqReceiveSignature() {
    host_.signed_receives = true;
    cqn_ = host_.create_cq();
    rqn_ = host_.create_rq(cqn_);
    host_.steer_all_to(host_.create_direct_tir(rqn_));
  }
  /// Posts a WQE of 32 bytes: the signature's segment and one piece.
  void post(std::byte harm = {}) {
    const auto index = host_.posted(rqn_);
    const auto buffer = host_.post_receive(rqn_, 2048);
    const std::span<std::byte> wqe(host_.receive_wqe(rqn_, index & 7u), 32);
    std::ranges::fill(wqe, std::byte{});
    put_piece(&wqe[16], 2048, test::EthernetHost::kKey, buffer);
    sign_receive(wqe, rqn_, index);
    wqe[17] ^= harm;
  }
  /// The CQE of a frame that arrives.
  util::View<spec::connectx::cqe_error> receive() {
    host_.arrive(test::make_frame({.payload = 100}));
    last_ = host_.poll(cqn_);
    EXPECT_FALSE(last_.empty());
    last_.resize(64);
    return util::View<spec::connectx::cqe_error>(last_);
  }

  using Cqe = spec::connectx::cqe_error;
  test::EthernetHost host_;
  std::vector<std::byte> last_;
  std::uint32_t cqn_ = 0;
  std::uint32_t rqn_ = 0;
};

TEST_F(RqReceiveSignature, TheSignatureOfAnRqThatRequestsOneIsChecked) {
  for (int i = 0; i != 10; ++i) {
    post();
    EXPECT_EQ(receive().get(Cqe::opcode), static_cast<std::uint32_t>(CqeOpcode::RESPONDER_SEND));
  }
}

TEST_F(RqReceiveSignature, WrongOneTakesTheRqToError) {
  post(std::byte{1});
  post();
  const auto cqe = receive();
  EXPECT_EQ(cqe.get(Cqe::opcode), static_cast<std::uint32_t>(CqeOpcode::RESPONDER_ERROR));
  EXPECT_EQ(Syndrome(cqe.get(Cqe::syndrome)), Syndrome::LOCAL_QP_OPERATION_ERROR);
  EXPECT_EQ(WqeFault(cqe.get(Cqe::hw_error_syndrome)), WqeFault::kReceiveSignature);
  host_.arrive(test::make_frame({.payload = 100}));
  EXPECT_TRUE(host_.poll(cqn_).empty()) << "PRM Table 57: incoming messages are dropped";
}

}  // namespace
}  // namespace softhca::connectx::test
