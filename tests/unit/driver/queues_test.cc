// The rings of a QP without a device: the bytes that the driver writes.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "driver/connectx/receive_queue.h"
#include "driver/connectx/send_queue.h"

namespace softhca::driver::connectx {
namespace {

using spec::data_segment_inline;
using spec::data_segment_pointer;
using spec::receive_data_segment;
using spec::wqe_atomic_segment;
using spec::wqe_ctrl_segment;
using spec::wqe_raddr_segment;

class SendQueueTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBlocks = 8;
  SendQueueTest() {
    ring_.fill(std::byte{0xaa});
    queue_.attach(ring_, {.requests = 4, .pieces = 6, .inline_size = 200}, 0x123456);
  }
  template <class Layout>
  util::View<Layout> at(std::size_t offset) const {
    return util::View<Layout>(std::span<const std::byte>(ring_).subspan(offset, Layout::kSize));
  }

  std::array<std::byte, kBlocks * SendQueue::kBlock> ring_;
  SendQueue queue_;
  const Sge piece_{0x1122334455667788, 0x1000, 0xabcd0001};
};

TEST_F(SendQueueTest, AWriteHasControlRemoteAddressAndData) {
  ASSERT_EQ(queue_.post({.opcode = SendOpcode::kRdmaWriteWithImmediate,
                         .pieces = {&piece_, 1},
                         .remote_address = 0xfedcba9876543210,
                         .rkey = 0x77,
                         .immediate = 0x99,
                         .solicited = true,
                         .fence = true}),
            PostStatus::kOk);
  const auto control = at<wqe_ctrl_segment>(0);
  EXPECT_EQ(control.get(wqe_ctrl_segment::opcode), 0x09u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::wqe_index), 0u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::sq_number), 0x123456u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::ds), 3u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::ce), 2u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::fm), 2u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::se), 1u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::imm), 0x99u);
  EXPECT_EQ(at<wqe_raddr_segment>(16).get(wqe_raddr_segment::raddr), 0xfedcba9876543210u);
  EXPECT_EQ(at<wqe_raddr_segment>(16).get(wqe_raddr_segment::rkey), 0x77u);
  const auto data = at<data_segment_pointer>(32);
  EXPECT_EQ(data.get(data_segment_pointer::byte_count), 0x1000u);
  EXPECT_EQ(data.get(data_segment_pointer::l_key), 0xabcd0001u);
  EXPECT_EQ(data.get(data_segment_pointer::local_address), 0x1122334455667788u);
  EXPECT_EQ(queue_.producer(), 1u);
}

TEST_F(SendQueueTest, AnAtomicHasItsOperands) {
  const Sge eight{0x1000, 8, 1};
  ASSERT_EQ(queue_.post({.opcode = SendOpcode::kCompareSwap,
                         .pieces = {&eight, 1},
                         .compare = 5,
                         .swap_or_add = 6,
                         .signaled = false}),
            PostStatus::kOk);
  EXPECT_EQ(at<wqe_ctrl_segment>(0).get(wqe_ctrl_segment::opcode), 0x11u);
  EXPECT_EQ(at<wqe_ctrl_segment>(0).get(wqe_ctrl_segment::ce), 0u);
  EXPECT_EQ(at<wqe_atomic_segment>(32).get(wqe_atomic_segment::compare), 5u);
  EXPECT_EQ(at<wqe_atomic_segment>(32).get(wqe_atomic_segment::swap_add), 6u);
}

TEST_F(SendQueueTest, PiecesWithoutBytesAreLeftOut) {
  const std::array pieces{Sge{1, 0, 1}, piece_, Sge{2, 0, 1}};
  ASSERT_EQ(queue_.post({.pieces = pieces}), PostStatus::kOk);
  EXPECT_EQ(at<wqe_ctrl_segment>(0).get(wqe_ctrl_segment::ds), 2u);
}

TEST_F(SendQueueTest, RequestsOfSeveralBlocksWrapAroundTheEnd) {
  // Six pieces and a control segment take 7 units, so 2 blocks. A WQE of 4 blocks follows the
  // third.
  const std::array<Sge, 6> pieces{piece_, piece_, piece_, piece_, piece_, piece_};
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(queue_.post({.id = i, .pieces = pieces}), PostStatus::kOk);
    EXPECT_EQ(queue_.complete(static_cast<std::uint16_t>(2 * i)), i);
  }
  EXPECT_EQ(queue_.producer(), 6u);
  std::array<std::byte, 200> data;
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  ASSERT_EQ(queue_.post({.id = 9, .inline_data = data}), PostStatus::kOk);
  // Written from block 6: control 16 bytes, inline header 4, data 108 bytes to the end of the ring,
  // 92 from its start.
  const auto control = at<wqe_ctrl_segment>(6 * 64);
  EXPECT_EQ(control.get(wqe_ctrl_segment::wqe_index), 6u);
  EXPECT_EQ(control.get(wqe_ctrl_segment::ds), 14u);
  const auto header = at<data_segment_inline>(6 * 64 + 16);
  EXPECT_EQ(header.get(data_segment_inline::inline_), 1u);
  EXPECT_EQ(header.get(data_segment_inline::byte_count), 200u);
  EXPECT_EQ(std::memcmp(ring_.data() + 6 * 64 + 20, data.data(), 108), 0);
  EXPECT_EQ(std::memcmp(ring_.data(), data.data() + 108, 92), 0);
  EXPECT_EQ(queue_.producer(), 10u);
  EXPECT_EQ(queue_.complete(6), 9u);
}

TEST_F(SendQueueTest, AFullRingRefusesAndACompletionFreesAllBefore) {
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(queue_.post({.id = i, .signaled = false}), PostStatus::kOk);
  }
  EXPECT_EQ(queue_.post({}), PostStatus::kQueueFull);
  EXPECT_EQ(queue_.complete(5), 5u);
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(queue_.post({.id = 100 + i}), PostStatus::kOk);
  }
  EXPECT_EQ(queue_.post({}), PostStatus::kQueueFull);
}

TEST_F(SendQueueTest, CompletionsOfWhatIsNotPostedAreRefused) {
  EXPECT_EQ(queue_.complete(0), std::nullopt);
  ASSERT_EQ(queue_.post({.id = 1}), PostStatus::kOk);
  EXPECT_EQ(queue_.complete(1), std::nullopt);
  EXPECT_EQ(queue_.complete(0), 1u);
  EXPECT_EQ(queue_.complete(0), std::nullopt);
}

TEST_F(SendQueueTest, CountersWrapAfterSixteenBits) {
  for (std::uint64_t i = 0; i < 70000; ++i) {
    ASSERT_EQ(queue_.post({.id = i}), PostStatus::kOk);
    ASSERT_EQ(queue_.complete(static_cast<std::uint16_t>(i)), i);
  }
}

class ReceiveQueueTest : public ::testing::Test {
 protected:
  ReceiveQueueTest() {
    ring_.fill(std::byte{0xaa});
    queue_.attach(ring_, 64, {.requests = 4, .pieces = 4});
  }
  util::View<receive_data_segment> segment(std::size_t index) const {
    return util::View<receive_data_segment>(
        std::span<const std::byte>(ring_).subspan(index * receive_data_segment::kSize));
  }

  std::array<std::byte, 256> ring_;
  ReceiveQueue queue_;
  const Sge piece_{0x1000, 16, 7};
};

TEST_F(ReceiveQueueTest, AShortListEndsWithTheTerminatingKey) {
  ASSERT_EQ(queue_.post({.id = 1, .pieces = {&piece_, 1}}), PostStatus::kOk);
  EXPECT_EQ(segment(0).get(receive_data_segment::byte_count), 16u);
  EXPECT_EQ(segment(0).get(receive_data_segment::l_key), 7u);
  EXPECT_EQ(segment(0).get(receive_data_segment::local_address), 0x1000u);
  EXPECT_EQ(segment(1).get(receive_data_segment::byte_count), 0u);
  EXPECT_EQ(segment(1).get(receive_data_segment::l_key), 0x100u);
}

TEST_F(ReceiveQueueTest, AFullListHasNoEnd) {
  const std::array<Sge, 4> pieces{piece_, piece_, piece_, piece_};
  ASSERT_EQ(queue_.post({.pieces = pieces}), PostStatus::kOk);
  EXPECT_EQ(segment(3).get(receive_data_segment::l_key), 7u);
  EXPECT_EQ(ring_[64], std::byte{0xaa}) << "the next entry is untouched";
}

TEST_F(ReceiveQueueTest, AFullRingRefusesUntilACompletion) {
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(queue_.post({.id = i}), PostStatus::kOk);
  EXPECT_EQ(queue_.post({}), PostStatus::kQueueFull);
  EXPECT_EQ(queue_.complete(0), 0u);
  EXPECT_EQ(queue_.post({.id = 4}), PostStatus::kOk);
  EXPECT_EQ(queue_.complete(1), 1u);
  EXPECT_EQ(queue_.complete(5), std::nullopt);
}

}  // namespace
}  // namespace softhca::driver::connectx
