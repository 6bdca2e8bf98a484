// Receive queues: where a frame is written, what stops a queue, and its states (PRM 3.3, 7.4.4.3,
// 7.7).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "connectx/base/resources.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_host.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/port/vport.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

TEST_F(EthernetReceive, FrameIsWrittenIntoTheNextWqe) {
  const auto first = host.post_receive(rqn, 2048);
  const auto second = host.post_receive(rqn, 2048);
  const auto frame = make_frame({.payload = 1000});
  const auto other = make_frame({.payload = 10});
  host.arrive(frame);
  host.arrive(other);
  EXPECT_EQ(host.read(first, frame.size()), frame);
  EXPECT_EQ(host.read(second, other.size()), other);
  auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::byte_cnt), frame.size());
  EXPECT_EQ(cqe.get(cqe64::wqe_counter), 0u);
  EXPECT_EQ(cqe.get(cqe64::flow_tag), 0u);
  EXPECT_EQ(cqe.get(cqe64::rx_hash_type), 0u);
  EXPECT_NE(cqe.get(cqe64::timestamp), 0u);
  cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::byte_cnt), other.size());
  EXPECT_EQ(cqe.get(cqe64::wqe_counter), 1u);
}

TEST_F(EthernetReceive, ScatterListIsFilledPieceByPiece) {
  const auto first = host.allocate(100);
  const auto second = host.allocate(1000);
  host.post_receive_list(rqn, {{first, 100}, {second, 1000}});
  const auto frame = make_frame({.payload = 800});
  host.arrive(frame);
  auto written = host.read(first, 100);
  const auto rest = host.read(second, frame.size() - 100);
  written.insert(written.end(), rest.begin(), rest.end());
  EXPECT_EQ(written, frame);
  EXPECT_EQ(host.read(second + frame.size() - 100, 1)[0], std::byte{0});
}

// PRM 7.4.4.3: how a frame is scattered changes neither its bytes nor its CQE. A frame that fits
// into the first buffer takes the fast path.
TEST_F(EthernetReceive, TheFastPathWritesWhatTheSlowPathWrites) {
  constexpr std::uint32_t kSize = 2048;
  std::mt19937 random(1);
  const auto buffer = host.allocate(kSize);
  const auto receive = [&](const Bytes& frame, std::uint32_t first) {
    std::fill_n(host.at(buffer), kSize, std::byte{0xEE});
    host.post_receive_list(rqn, {{buffer, first}, {buffer + first, kSize - first}});
    host.arrive(frame);
    (void)completion();
    const util::MutableView<cqe64> cqe(last);
    cqe.set(cqe64::timestamp, 0);
    std::fill(last.begin() + 0x3C, last.end(), std::byte{});  // wqe_counter, signature, owner
    return std::pair(host.read(buffer, kSize), last);
  };
  for (int i = 0; i != 500; ++i) {
    const auto frame = make_frame(
        {.ipv6 = random() % 2 == 0, .udp = random() % 2 == 0, .payload = 1 + random() % 1400});
    const auto size = static_cast<std::uint32_t>(frame.size());
    const auto fast = receive(frame, size);
    const auto slow = receive(frame, 1 + static_cast<std::uint32_t>(random() % (size - 1)));
    ASSERT_EQ(fast, slow) << i;
  }
}

TEST_F(EthernetReceive, CountersWrapAtSixteenBits) {
  const auto frame = make_frame({});
  const auto buffer = host.allocate(2048);
  for (unsigned i = 0; i < 0x10004; ++i) {
    host.post_receive_list(rqn, {{buffer, 2048}});
    host.arrive(frame);
    ASSERT_EQ(completion().get(cqe64::wqe_counter), i & 0xFFFF);
  }
}

TEST_F(EthernetReceive, FrameWithoutWqeIsDroppedAndCounted) {
  const auto counter_set = *host.device.driver().resources().allocate_q_counter();
  EXPECT_TRUE((host.call<modify_rq_out, modify_rq_in>(
                       Opcode::MODIFY_RQ,
                       [&](auto in) {
                         in.set(modify_rq_in::rqn, rqn);
                         in.set(modify_rq_in::rq_state, static_cast<std::uint32_t>(RqState::RDY));
                         in.set(modify_rq_in::modify_bitmask, 8);
                         const auto context = in.sub(modify_rq_in::rq_context);
                         context.set(rq_context::state, static_cast<std::uint32_t>(RqState::RDY));
                         context.set(rq_context::counter_set_id, counter_set.value());
                       })
                   .ok()));
  const auto frame = make_frame({});
  host.arrive(frame);
  host.arrive(frame);
  EXPECT_TRUE(host.poll(cqn).empty());
  EXPECT_EQ(host.device.driver().resources().q_counter(counter_set)->out_of_buffer, 2u);
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  // "the number of dropped packets because of no RCV WQE since the last CQE" (PRM Table 68).
  EXPECT_EQ(completion().get(cqe64::rx_drop_counter), 2u);
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  EXPECT_EQ(completion().get(cqe64::rx_drop_counter), 0u);
}

TEST_F(EthernetReceive, FrameLargerThanTheBuffersIsAnErrorOfThisFrameAlone) {
  const auto small = host.post_receive(rqn, 64);
  host.post_receive(rqn, 2048);
  const auto frame = make_frame({.payload = 500});
  host.arrive(frame);
  expect_error(0, cqe_syndrome::LOCAL_LENGTH_ERROR, rdma::Reason::kReceiveTooShort);
  EXPECT_EQ(host.read(small + 64, 64), Bytes(64));
  host.arrive(frame);
  EXPECT_EQ(completion().get(cqe64::wqe_counter), 1u);
}

TEST_F(EthernetReceive, EndOfTheFrameIsPaddedToACacheLineIfTheQueueSaysSo) {
  // Lines of 64 bytes (PRM 3.3.10); byte_cnt does not count the padding.
  constexpr std::size_t kLine = 64;
  const auto padded = host.create_rq(cqn, 3, 5, true, end_padding_mode::END_PAD_ALIGN);
  host.steer_all_to(host.create_direct_tir(padded));
  const auto fill = [&](std::uint64_t buffer, std::size_t size) {
    std::fill_n(host.at(buffer), size, std::byte{0xEE});
  };
  const auto buffer = host.allocate(1024);
  const auto frame = make_frame({.payload = 200 - 54});
  ASSERT_EQ(frame.size(), 200u);

  fill(buffer, 1024);
  host.post_receive_list(padded, {{buffer, 1024}});
  host.arrive(frame);
  EXPECT_EQ(host.read(buffer, 200), frame);
  EXPECT_EQ(host.read(buffer + 200, 56), Bytes(56)) << "to the end of the line";
  EXPECT_EQ(host.read(buffer + 256, 1)[0], std::byte{0xEE}) << "and no further";
  EXPECT_EQ(completion().get(cqe64::byte_cnt), 200u);

  fill(buffer, 1024);
  host.post_receive_list(padded, {{buffer + 8, 210}});
  host.arrive(frame);
  EXPECT_EQ(host.read(buffer + 208, 10), Bytes(10));
  EXPECT_EQ(host.read(buffer + 218, 1)[0], std::byte{0xEE}) << "not beyond the scatter entry";
  completion();

  fill(buffer, 1024);
  host.post_receive_list(padded, {{buffer, 200}, {buffer + kLine * 8, 64}});
  host.arrive(frame);
  EXPECT_EQ(host.read(buffer + 200, 1)[0], std::byte{0xEE});
  EXPECT_EQ(host.read(buffer + kLine * 8, 1)[0], std::byte{0xEE}) << "the next entry is not begun";
  completion();
}

TEST_F(EthernetReceive, EndOfTheFrameIsScatteredAsIsOtherwise) {
  const auto buffer = host.post_receive(rqn, 1024);
  std::fill_n(host.at(buffer), 1024, std::byte{0xEE});
  host.arrive(make_frame({.payload = 200 - 54}));
  EXPECT_EQ(host.read(buffer + 200, 1)[0], std::byte{0xEE});
}

TEST_F(EthernetReceive, KeyThatForbidsWritingTakesTheQueueToTheErrorState) {
  rdma::MemoryKey::Attributes key;
  key.key = rdma::MKey(0x6600);
  key.pd = rdma::Pd(host.pd);
  key.access = rdma::kLocalRead;
  key.whole_space = true;
  host.device.driver().memory_keys().table().insert(key);
  host.post_receive(rqn, 2048);
  host.post_receive(rqn, 2048);
  util::store_be32(host.receive_wqe(rqn, 0) + 4, 0x6600);
  host.arrive(make_frame({}));
  expect_error(0, cqe_syndrome::LOCAL_PROTECTION_ERROR, rdma::Reason::kKeyRights);
  host.run_later();
  expect_error(1, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed);
}

// States -----------------------------------------------------------------------------------------

TEST_F(EthernetReceive, MessagesAreSilentlyDroppedInReset) {
  EXPECT_TRUE(modify(RqState::RDY, RqState::RST).ok());
  host.post_receive(rqn, 2048);
  host.arrive(make_frame({}));
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(EthernetReceive, WqesArePostedToTheErrorStateToBeFlushed) {
  host.post_receive(rqn, 2048);
  EXPECT_TRUE(modify(RqState::RDY, RqState::ERR).ok());
  host.run_later();
  expect_error(0, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed);
  // Software rings no doorbell for receives.
  host.post_receive(rqn, 2048);
  host.run_later();
  expect_error(1, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed);
  host.arrive(make_frame({}));
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(EthernetReceive, RunsOfQueuesThatAreReadyAreNotPolled) {
  host.run();
  EXPECT_EQ(host.run_ethernet(), util::kNever);
}

TEST_F(EthernetReceive, MemoryThatIsGoneStopsTheQueue) {
  host.post_receive(rqn, 2048);
  host.unmap();
  host.arrive(make_frame({}));
  host.run_later();
  // There is no WQE to complete and no CQ to report to, so only the state shows the error.
  host.map();
  const auto answer = host.call<query_rq_out, query_rq_in>(
      Opcode::QUERY_RQ, [&](auto in) { in.set(query_rq_in::rqn, rqn); });
  const auto context = answer.as<query_rq_out>().get(query_rq_out::rq_context);
  EXPECT_EQ(context.get(rq_context::state), static_cast<std::uint32_t>(RqState::ERR));
  EXPECT_EQ(context.get(rq_context::wq).get(wq::hw_counter), 0u) << "nothing was taken";
  EXPECT_EQ(host.run_ethernet(), util::kNever) << "nor is it flushed";
}

}  // namespace
}  // namespace softhca::connectx::test
