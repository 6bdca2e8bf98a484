// Send queues and the frames that they put on the wire (PRM 3.3, 7.4.4, 7.9).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "connectx/ethernet_host.h"
#include "connectx/port/network_port.h"
#include "connectx/queue/wqe_fault.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;
using SqState = spec::connectx::sq_state;

class EthernetSend : public ::testing::Test {
 protected:
  explicit EthernetSend(const Model& model = {})
      : host({.model = model}), cqn(host.create_cq()), sqn(host.create_sq(cqn)) {}

  Wqe wqe(wqe_opcode opcode = wqe_opcode::SEND) { return {opcode, sqn, host.posted(sqn)}; }
  std::uint64_t place(std::span<const std::byte> bytes) {
    const auto buffer = host.allocate(bytes.size());
    std::ranges::copy(bytes, host.at(buffer));
    return buffer;
  }
  /// A WQE that sends `frame`, with `inlined` bytes in the Eth segment.
  Bytes send_of(std::span<const std::byte> frame, std::size_t inlined, bool checksums = false) {
    const auto rest = frame.subspan(inlined);
    auto result = wqe().eth(frame.first(inlined), checksums);
    if (!rest.empty()) {
      result.pointer(EthernetHost::kKey, place(rest), static_cast<std::uint32_t>(rest.size()));
    }
    return result.finish();
  }
  void expect_completion(std::uint16_t counter) {
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    const util::View<cqe64_requester> view(cqe);
    EXPECT_EQ(view.get(cqe64_requester::opcode), 0u);
    EXPECT_EQ(view.get(cqe64_requester::wqe_counter), counter);
    EXPECT_EQ(view.get(cqe64_requester::qpn), sqn);
    EXPECT_EQ(view.get(cqe64_requester::srqn_user_index), 0xABCDEu);
  }
  void expect_error(std::uint16_t counter, cqe_syndrome syndrome, rdma::Reason reason) {
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    const util::View<cqe_error> view(cqe);
    EXPECT_EQ(view.get(cqe_error::opcode), static_cast<unsigned>(cqe_opcode::REQUESTER_ERROR));
    EXPECT_EQ(view.get(cqe_error::syndrome), static_cast<unsigned>(syndrome));
    EXPECT_EQ(view.get(cqe_error::hw_error_syndrome), static_cast<unsigned>(reason));
    // The number that hardware uses, if it is known.
    const unsigned vendor_err = syndrome == cqe_syndrome::LOCAL_PROTECTION_ERROR ? 0x52u
                                : syndrome == cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR
                                    ? 0xF9u
                                    : static_cast<unsigned>(reason);
    EXPECT_EQ(view.get(cqe_error::vendor_error_syndrome), vendor_err);
    EXPECT_EQ(view.get(cqe_error::wqe_counter), counter);
    EXPECT_EQ(view.get(cqe_error::qpn), sqn);
  }
  void expect_no_completion() { EXPECT_TRUE(host.poll(cqn).empty()); }

  EthernetHost host;
  std::uint32_t cqn;
  std::uint32_t sqn;
};

TEST_F(EthernetSend, NopCreatesACompletionButDoesNothingElse) {
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  expect_completion(0);
  EXPECT_TRUE(host.port.sent.empty());
}

TEST_F(EthernetSend, WqesAreNotExecutedBeforeTheDoorbell) {
  host.write_wqe(sqn, wqe(wqe_opcode::NOP).finish());
  host.run();
  expect_no_completion();
  host.ring_send(sqn);
  host.run();
  expect_completion(0);
}

// PRM 7.2: "HCA validates that the UAR page used to post the command matches the one specified in
// the contexts of that object."
TEST_F(EthernetSend, AnSqListensOnlyToItsOwnDoorbellPage) {
  host.write_wqe(sqn, wqe(wqe_opcode::NOP).finish());
  const auto page = std::exchange(host.uar, host.uar + 1);
  host.ring_send(sqn);
  host.run();
  expect_no_completion();
  host.uar = page;
  host.ring_send(sqn);
  host.run();
  expect_completion(0);
}

// PRM 7.4.3.1: the device may execute WQEs once the record covers them; their doorbell comes later.
TEST_F(EthernetSend, RepeatedDoorbellsChangeNothing) {
  const auto frame = make_frame({.payload = 100});
  host.post_send(sqn, send_of(frame, 18));
  expect_completion(0);
  for (int i = 0; i < 3; ++i) host.ring_send(sqn);
  host.run();
  expect_no_completion();
  EXPECT_EQ(host.port.sent.size(), 1u);
}

TEST_F(EthernetSend, CompletionHasTheCounterOfTheWqesFirstBlock) {
  const auto frame = make_frame({.payload = 500});
  host.post_send(sqn, send_of(frame, 200));
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  expect_completion(0);
  expect_completion(4);  // 16 + 214 (rounded up) + 16 bytes take four blocks
}

TEST_F(EthernetSend, CqeIsGeneratedOnlyForSignaledWqes) {
  host.post_send(sqn, wqe(wqe_opcode::NOP).unsignaled().finish());
  host.post_send(sqn, wqe(wqe_opcode::NOP).finish());
  expect_completion(1);
  expect_no_completion();
}

/// On a model that needs no inline headers.
class EthernetSendAnyHeaders : public EthernetSend {
 protected:
  EthernetSendAnyHeaders() : EthernetSend(without_inline_headers()) {}
};

class EthernetSendInline : public EthernetSendAnyHeaders,
                           public ::testing::WithParamInterface<std::size_t> {};

TEST_P(EthernetSendInline, FrameIsInlineHeadersThenGatheredData) {
  const auto frame = make_frame({.payload = 600});
  host.post_send(sqn, send_of(frame, GetParam()));
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], frame);
  expect_completion(0);
}
INSTANTIATE_TEST_SUITE_P(Sizes, EthernetSendInline,
                         ::testing::Values(0, 1, 2, 3, 14, 18, 54, 187, 188, 189, 300));

// PRM 7.9.3: with wqe_inline_mode 0, a frame is dropped unless its headers up to the last EtherType
// are inline, whatever min_wqe_inline_mode of its SQ says. Its WQE completes nevertheless.
TEST_F(EthernetSend, AFrameWithoutItsL2HeadersInlineIsDropped) {
  struct Case {
    int vlan_tci;
    std::size_t inlined;
    bool sent;
  };
  const Case cases[] = {{-1, 0, false}, {-1, 2, false}, {-1, 13, false}, {-1, 14, true},
                        {5, 0, false},  {5, 14, false}, {5, 17, false},  {5, 18, true}};
  std::uint16_t counter = 0;
  for (const auto& c : cases) {
    const auto frame = make_frame({.vlan_tci = c.vlan_tci, .payload = 100});
    host.port.sent.clear();
    host.post_send(sqn, send_of(frame, c.inlined));
    expect_completion(counter++);
    EXPECT_EQ(host.port.sent.size(), c.sent ? 1u : 0u) << c.vlan_tci << ", " << c.inlined;
  }
}

TEST_F(EthernetSend, GatherListMixesPointersAndInlineData) {
  const auto frame = make_frame({.payload = 100});
  const auto bytes = std::span(frame);
  host.post_send(sqn, wqe()
                          .eth(bytes.first(14))
                          .pointer(EthernetHost::kKey, place(bytes.subspan(14, 20)), 20)
                          .inline_data(bytes.subspan(34, 50))
                          .inline_data({})
                          .pointer(EthernetHost::kKey, place(bytes.subspan(84)),
                                   static_cast<std::uint32_t>(frame.size() - 84))
                          .finish());
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], frame);
}

TEST_F(EthernetSend, WqeWrapsAroundTheEndOfTheQueue) {
  for (int i = 0; i < 14; ++i) host.post_send(sqn, wqe(wqe_opcode::NOP).unsignaled().finish());
  const auto frame = make_frame({.payload = 300});
  host.post_send(sqn, send_of(frame, 300));
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], frame);
  expect_completion(14);
}

TEST_F(EthernetSend, CountersWrapAtSixteenBits) {
  for (unsigned i = 0; i < 0x10002; ++i) {
    auto nop = wqe(wqe_opcode::NOP);
    if (i < 0xFFFF) nop.unsignaled();
    host.write_wqe(sqn, nop.finish());
    if (i % 16 == 15 || i > 0xFFF0) {
      host.ring_send(sqn);
      host.run();
    }
  }
  expect_completion(0xFFFF);
  expect_completion(0);
  expect_completion(1);
}

TEST_F(EthernetSend, PacketsShorterThan64BytesArePaddedWithZeros) {
  Bytes frame = make_frame({.udp = true, .payload = 1});
  host.post_send(sqn, send_of(frame, 14));
  frame.resize(60);  // 64 with the FCS
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], frame);
}

class EthernetSendChecksum : public EthernetSend,
                             public ::testing::WithParamInterface<std::tuple<bool, bool, bool>> {};

TEST_P(EthernetSendChecksum, ChecksumsAreCalculatedWhateverStandsInTheirPlace) {
  const auto [ipv6, udp, vlan] = GetParam();
  const FrameSpec spec{.ipv6 = ipv6, .udp = udp, .vlan_tci = vlan ? 5 : -1, .payload = 777};
  auto frame = make_frame(spec);
  frame[frame.size() - spec.payload - 2] = std::byte{0x77};  // stale urgent pointer or checksum
  host.post_send(sqn, send_of(frame, 18, true));
  fix_checksums(frame, spec);
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], frame);
}
INSTANTIATE_TEST_SUITE_P(Kinds, EthernetSendChecksum,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                                            ::testing::Bool()));

TEST_F(EthernetSend, ChecksumsAreLeftAloneIfNotAskedFor) {
  auto frame = make_frame({.payload = 99});
  frame[14 + 10] = std::byte{0x12};
  host.post_send(sqn, send_of(frame, 18));
  EXPECT_EQ(host.port.sent.at(0), frame);
}

TEST_F(EthernetSendAnyHeaders, VlanTagIsInsertedBehindTheSourceAddress) {
  const auto frame = make_frame({.payload = 300});
  host.post_send(
      sqn, wqe()
               .eth({})
               .insert_vlan(0xA123)
               .pointer(EthernetHost::kKey, place(frame), static_cast<std::uint32_t>(frame.size()))
               .finish());
  EXPECT_EQ(host.port.sent.at(0), make_frame({.vlan_tci = 0xA123, .payload = 300}));
}

class EthernetSendLso : public EthernetSend,
                        public ::testing::WithParamInterface<std::tuple<bool, bool>> {};

TEST_P(EthernetSendLso, HeaderTemplateIsUpdatedForEverySegment) {
  const auto [ipv6, udp] = GetParam();
  const std::size_t kMss = 1000, kPayload = 3500;
  const FrameSpec message{.ipv6 = ipv6, .udp = udp, .payload = kPayload};
  const auto frame = make_frame(message);
  const auto header = header_size(message);
  const auto payload = std::span(frame).subspan(header);
  host.post_send(sqn, wqe(wqe_opcode::LSO)
                          .eth(std::span(frame).first(header), true, kMss)
                          .pointer(EthernetHost::kKey, place(payload.first(1700)), 1700)
                          .pointer(EthernetHost::kKey, place(payload.subspan(1700)), 1800)
                          .finish());
  ASSERT_EQ(host.port.sent.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    auto segment = message;
    segment.payload = i < 3 ? kMss : 500;
    segment.tcp_sequence += static_cast<std::uint32_t>(i * kMss);
    auto expected = make_frame(segment);
    std::ranges::copy(payload.subspan(i * kMss, segment.payload),
                      expected.begin() + static_cast<std::ptrdiff_t>(header));
    if (!ipv6) util::store_be16(expected.data() + 18, static_cast<std::uint16_t>(0x1234 + i));
    if (!udp && i < 3) expected[header - 20 + 13] = std::byte{0x10};  // PSH on the last only
    fix_checksums(expected, segment);
    EXPECT_EQ(host.port.sent[i], expected) << "segment " << i;
  }
  expect_completion(0);
  expect_no_completion();
}
INSTANTIATE_TEST_SUITE_P(Kinds, EthernetSendLso,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST_F(EthernetSend, LargeLsoMessageLetsOtherQueuesHaveTheirTurn) {
  const auto other_cqn = host.create_cq();
  const auto other = host.create_sq(other_cqn);
  const FrameSpec message{.payload = 0};
  const auto header = make_frame(message);
  const auto buffer = host.allocate(60000);
  host.write_wqe(sqn, wqe(wqe_opcode::LSO)
                          .eth(header, true, 100)
                          .pointer(EthernetHost::kKey, buffer, 60000)
                          .finish());
  host.write_wqe(other, Wqe(wqe_opcode::NOP, other, 0).finish());
  host.ring_send(sqn);
  host.ring_send(other);
  host.device.run(host.device.now());
  EXPECT_LT(host.port.sent.size(), 600u);
  EXPECT_FALSE(host.poll(other_cqn).empty());
  expect_no_completion();
  host.run();
  EXPECT_EQ(host.port.sent.size(), 600u);
  expect_completion(0);
}

// PRM 3.3.4: many SQs may be associated with one TIS.
TEST_F(EthernetSend, AllSqsOfATisSendAndHoldIt) {
  host.shared_tisn = host.create_tis();
  std::vector<std::uint32_t> sqns;
  for (int i = 0; i != 8; ++i) sqns.push_back(host.create_sq(cqn));
  const auto destroy_tis = [&] {
    return host
        .call<destroy_tis_out, destroy_tis_in>(
            Opcode::DESTROY_TIS, [&](auto in) { in.set(destroy_tis_in::tisn, host.shared_tisn); })
        .status();
  };
  for (const auto number : sqns) {
    const auto frame = make_frame({.payload = static_cast<unsigned>(100 + number)});
    host.post_send(number, Wqe(wqe_opcode::SEND, number, 0)
                               .eth(std::span(frame).first(18))
                               .pointer(EthernetHost::kKey, place(std::span(frame).subspan(18)),
                                        static_cast<std::uint32_t>(frame.size() - 18))
                               .finish());
    ASSERT_FALSE(host.port.sent.empty());
    EXPECT_EQ(host.port.sent.back(), frame) << number;
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    EXPECT_EQ(util::View<cqe64_requester>(cqe).get(cqe64_requester::qpn), number);
  }
  EXPECT_EQ(destroy_tis(), command_status::BAD_RES_STATE);
  for (const auto number : sqns) {
    EXPECT_TRUE((host.call<destroy_sq_out, destroy_sq_in>(
                         Opcode::DESTROY_SQ, [&](auto in) { in.set(destroy_sq_in::sqn, number); })
                     .ok()));
  }
  EXPECT_EQ(destroy_tis(), command_status::OK);
}

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
  EXPECT_EQ(host.device.network_port().counters().transmit_errors.packets, 1u);
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
