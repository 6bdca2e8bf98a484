// Errors and states of send queues (PRM 7.9).
#include <gtest/gtest.h>

#include "connectx/ethernet/send_host.h"
#include "connectx/port/network_port.h"
#include "connectx/queue/wqe_fault.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;
using SqState = spec::connectx::sq_state;

// Errors -----------------------------------------------------------------------------------------

TEST_F(EthernetSend, UnknownKeyIsALocalProtectionErrorAndTheRestIsFlushed) {
  const auto frame = make_frame({});
  host.write_wqe(sqn, wqe().eth(std::span(frame).first(18)).pointer(0x9900, 0, 100).finish());
  host.write_wqe(sqn, wqe(wqe_opcode::NOP).unsignaled().finish());
  host.ring_send(sqn);
  host.run();
  expect_error(0, cqe_syndrome::LOCAL_PROTECTION_ERROR, rdma::Reason::kKeyUnknown);
  expect_error(1, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed);
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_EQ(host.sq_state(sqn), SqState::ERR);
  // "WQEs that were posted and WQEs that will be posted" (PRM Table 61).
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  expect_error(2, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed);
}

TEST_F(EthernetSend, BadWqesAreLocalOperationErrors) {
  const auto frame = make_frame({});
  const auto bytes = std::span(frame);
  const auto expect_bad = [&](const Bytes& bad, WqeFault fault) {
    host.post_send(sqn, bad);
    expect_error(0, cqe_syndrome::LOCAL_QP_OPERATION_ERROR, reason_of(fault));
    EXPECT_TRUE(host.modify_sq(sqn, SqState::ERR, SqState::RST).ok());
    host.reset_ring(sqn);
    EXPECT_TRUE(host.modify_sq(sqn, SqState::RST, SqState::RDY).ok());
  };
  expect_bad(wqe(wqe_opcode::RDMA_WRITE).eth({}).finish(), WqeFault::kNotAnEthernetOpcode);
  expect_bad(wqe(wqe_opcode::UMR).finish(), WqeFault::kNotAnEthernetOpcode);
  expect_bad(wqe().finish(), WqeFault::kNoEthSegment);  // no Eth segment
  expect_bad(wqe(wqe_opcode::LSO).eth(bytes.first(54), true, 0).finish(), WqeFault::kLsoWithoutMss);
  expect_bad(wqe(wqe_opcode::LSO).eth(bytes.first(30), true, 100).finish(),
             WqeFault::kLsoNotTcpOrUdp);  // half a header
  auto inner = wqe().eth(bytes.first(18)).finish();
  util::MutableView<wqe_eth_segment>(std::span(inner).subspan(16))
      .set(wqe_eth_segment::l3cs_inner, 1);
  expect_bad(inner, WqeFault::kInnerChecksums);
  auto no_size = wqe().eth({}).finish();
  no_size[7] = std::byte{0};
  expect_bad(no_size, WqeFault::kSizeZero);
  auto past_posted = wqe().eth({}).finish();
  past_posted[7] = std::byte{63};
  expect_bad(past_posted, WqeFault::kPastPosted);
  auto long_header = wqe().eth(bytes.first(18)).finish();
  util::store_be16(long_header.data() + 28, 700);
  expect_bad(long_header, WqeFault::kInlineHeadersTooLong);
  auto long_inline = wqe().eth(bytes.first(18)).inline_data(bytes.subspan(18, 20)).finish();
  util::store_be32(long_inline.data() + 48, 0x80000000u | 900);
  expect_bad(long_inline, WqeFault::kInlineTooLong);
}

/// WQEs whose control segment is not that of their queue and place.
class EthernetSendMisplaced : public EthernetSend {
 protected:
  /// Expects that WQEs of `number` and `step` places further on are refused.
  void expect_refused(std::uint32_t number, std::uint16_t step, WqeFault fault) {
    const auto misplaced = [&](wqe_opcode opcode, bool checksums) {
      return Wqe(opcode, number, static_cast<std::uint16_t>(host.posted(sqn) + step))
          .eth(std::span(frame).first(18), checksums)
          .pointer(EthernetHost::kKey, place(std::span(frame).subspan(18)),
                   static_cast<std::uint32_t>(frame.size() - 18))
          .finish();
    };
    expect_fault(0, misplaced(wqe_opcode::SEND, false), fault);
    expect_fault(0, misplaced(wqe_opcode::NOP, false), fault);
    // The template of a WQE that was right does not hide it.
    for (std::uint16_t i = 0; i != 2; ++i) {
      host.post_send(sqn, send_of(frame, 18, true));
      expect_completion(i);
    }
    expect_fault(2, misplaced(wqe_opcode::SEND, true), fault);
  }
  void expect_fault(std::uint16_t counter, const Bytes& bad, WqeFault fault) {
    host.port.sent.clear();
    host.post_send(sqn, bad);
    expect_error(counter, cqe_syndrome::LOCAL_QP_OPERATION_ERROR, reason_of(fault));
    EXPECT_TRUE(host.port.sent.empty());
    EXPECT_EQ(host.sq_state(sqn), SqState::ERR);
    EXPECT_TRUE(host.modify_sq(sqn, SqState::ERR, SqState::RST).ok());
    host.reset_ring(sqn);
    EXPECT_TRUE(host.modify_sq(sqn, SqState::RST, SqState::RDY).ok());
  }

  Bytes frame = make_frame({.udp = true, .payload = 300});
};

// PRM 9.2.3: "These checks assure that operation specified in the WQE is consistent with queue this
// WQE is posted on."
TEST_F(EthernetSendMisplaced, AWqeOfAnotherQueueIsALocalOperationError) {
  expect_refused(host.create_sq(host.create_cq()), 0, WqeFault::kWrongQpn);
}

// PRM Table 26: "WQEBB number of the first block of this WQE."
TEST_F(EthernetSendMisplaced, AWqeOfAnotherPlaceIsALocalOperationError) {
  expect_refused(sqn, 1, WqeFault::kWrongIndex);
  expect_refused(sqn, 16, WqeFault::kWrongIndex);  // the same place, a lap later
  expect_refused(sqn, 0xFFFF, WqeFault::kWrongIndex);
}

TEST_F(EthernetSend, AQueueWithoutTisSendsNothing) {
  // Queues that only execute NOPs have no TIS.
  const auto internal = host.create_sq(cqn, 4, true, false);
  host.post_send(internal, Wqe(wqe_opcode::NOP, internal, 0).finish());
  ASSERT_FALSE(host.poll(cqn).empty());
  sqn = internal;
  host.post_send(internal, Wqe(wqe_opcode::SEND, internal, 1).eth({}).finish());
  expect_error(1, cqe_syndrome::LOCAL_QP_OPERATION_ERROR, reason_of(WqeFault::kNoTis));
}

TEST_F(EthernetSend, MessageThatIsNoFrameIsALengthError) {
  const auto buffer = host.allocate(16);
  host.post_send(sqn, wqe().eth({}).pointer(EthernetHost::kKey, buffer, 0).finish());  // 2 GiB
  expect_error(0, cqe_syndrome::LOCAL_LENGTH_ERROR, reason_of(WqeFault::kFrameTooLong));
}

TEST_F(EthernetSend, FrameBeyondThePortsMtuIsDroppedAndCompleted) {
  const auto frame = make_frame({.payload = 12000});
  host.post_send(sqn, send_of(frame, 18));
  expect_completion(0);
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_EQ(host.device.driver().network_port().counters().transmit_errors.packets, 1u);
}

TEST_F(EthernetSend, CounterFurtherThanTheQueueIsLongStopsTheQueue) {
  for (int i = 0; i < 17; ++i) host.write_wqe(sqn, wqe(wqe_opcode::NOP).finish());
  host.ring_send(sqn);
  host.run();
  expect_no_completion();
  EXPECT_EQ(host.sq_state(sqn), SqState::ERR);
}

TEST_F(EthernetSend, OverrunOfTheCqTakesTheQueueToTheErrorState) {
  const auto small = host.create_cq(1);
  const auto victim = host.create_sq(small);
  for (int i = 0; i < 4; ++i) {
    host.write_wqe(victim, Wqe(wqe_opcode::NOP, victim, host.posted(victim)).finish());
  }
  host.ring_send(victim);
  host.run();
  EXPECT_EQ(host.sq_state(victim), SqState::ERR);
  // "It is guaranteed, however, that operation of other queues will not be affected" (PRM 7.4.3).
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  expect_completion(0);
}

// PRM Table 26, CE: "Generate CQE only on first WQE completion with error". DPDK sizes its CQs for
// the few WQEs that request a CQE, and gives all others this mode.
TEST_F(EthernetSend, AfterAnErrorOnlyOneFlushedWqeWithFirstErrorHasACqe) {
  const auto small = host.create_cq(2);
  const auto queue = host.create_sq(small, 6);
  const auto frame = make_frame({.payload = 100});
  const auto buffer = place(frame);
  const auto quiet = [&](std::uint32_t key) {
    return Wqe(wqe_opcode::SEND, queue, host.posted(queue))
        .eth(std::span(frame).first(18))
        .pointer(key, buffer + 18, static_cast<std::uint32_t>(frame.size() - 18))
        .completes(wqe_completion::ON_FIRST_ERROR)
        .finish();
  };
  for (int life = 0; life != 2; ++life) {
    for (int i = 0; i != 60; ++i)
      host.write_wqe(queue, quiet(i == 0 ? 0xBAD00 : EthernetHost::kKey));
    host.write_wqe(queue, Wqe(wqe_opcode::NOP, queue, host.posted(queue)).finish());
    host.ring_send(queue);
    host.run();
    const auto first = host.poll(small);
    ASSERT_FALSE(first.empty());
    EXPECT_EQ(util::View<cqe_error>(first).get(cqe_error::syndrome),
              static_cast<unsigned>(cqe_syndrome::LOCAL_PROTECTION_ERROR));
    EXPECT_EQ(util::View<cqe_error>(first).get(cqe_error::wqe_counter), 0u);
    const auto second = host.poll(small);
    ASSERT_FALSE(second.empty()) << "the one that asks for a CQE";
    EXPECT_EQ(util::View<cqe_error>(second).get(cqe_error::wqe_counter), 60u);
    EXPECT_TRUE(host.poll(small).empty());
    EXPECT_TRUE(host.modify_sq(queue, SqState::ERR, SqState::RST).ok());
    host.reset_ring(queue);
    EXPECT_TRUE(host.modify_sq(queue, SqState::RST, SqState::RDY).ok());
  }
}

// States -----------------------------------------------------------------------------------------

TEST_F(EthernetSend, DoorbellsAreNotProcessedInReset) {
  EXPECT_TRUE(host.modify_sq(sqn, SqState::RDY, SqState::RST).ok());
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  expect_no_completion();
  // The record may still hold an old counter when the queue becomes ready, so only a doorbell
  // starts it.
  EXPECT_TRUE(host.modify_sq(sqn, SqState::RST, SqState::RDY).ok());
  host.run();
  expect_no_completion();
}

TEST_F(EthernetSend, QueueStartsAtZeroAgainAfterErrorAndReset) {
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  host.post_send(sqn, wqe(wqe_opcode::UMR).finish());
  expect_completion(0);
  expect_error(1, cqe_syndrome::LOCAL_QP_OPERATION_ERROR,
               reason_of(WqeFault::kNotAnEthernetOpcode));
  EXPECT_TRUE(host.modify_sq(sqn, SqState::ERR, SqState::RST).ok());
  host.reset_ring(sqn);
  EXPECT_TRUE(host.modify_sq(sqn, SqState::RST, SqState::RDY).ok());
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  expect_completion(0);
}

TEST_F(EthernetSend, ModifyToErrorFlushesWithoutDoorbell) {
  host.write_wqe(sqn, wqe(wqe_opcode::NOP).unsignaled().finish());
  EXPECT_TRUE(host.modify_sq(sqn, SqState::RDY, SqState::ERR).ok());
  host.run();
  expect_error(0, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed);
}

TEST_F(EthernetSend, DestroyedQueueIsNotRun) {
  host.write_wqe(sqn, wqe(wqe_opcode::NOP).finish());
  host.ring_send(sqn);
  EXPECT_TRUE((host.call<destroy_sq_out, destroy_sq_in>(
                       Opcode::DESTROY_SQ, [&](auto in) { in.set(destroy_sq_in::sqn, sqn); })
                   .ok()));
  host.run();
  expect_no_completion();
}

}  // namespace
}  // namespace softhca::connectx::test
