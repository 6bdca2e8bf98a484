// Send WQEs of QPs: the decoding of each segment, and the report of a malformed WQE (mlx5 driver
// interface 8.3).
#include "connectx/qp/send_wqe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "connectx/qp/wqe_builder.h"

namespace softhca::connectx {
namespace {

using rdma::QpType;
using rdma::SendOpcode;
using test::WqeBuilder;
using WqeOpcode = spec::connectx::wqe_opcode;
using CtrlSegment = spec::connectx::wqe_ctrl_segment;
using Fence = spec::connectx::wqe_fence;

constexpr std::uint16_t kIndex = 0xFFFE;
constexpr std::uint32_t kQpn = 0x41;

SendWqeRules rules(QpType type) { return {.type = type, .qpn = rdma::Qpn(kQpn)}; }
WqeBuilder wqe(WqeOpcode opcode) { return WqeBuilder(opcode, kIndex, kQpn); }

struct Decoded {
  WqeFault fault;
  rdma::SendRequest request;
};

Decoded decode(const WqeBuilder& builder, const SendWqeRules& with) {
  Decoded result;
  result.fault = decode_send_wqe(builder.bytes(), SendWqeControl::parse(builder.bytes()), kIndex,
                                 with, result.request);
  return result;
}
Decoded decode(const WqeBuilder& builder, QpType type = QpType::kRc) {
  return decode(builder, rules(type));
}

TEST(RdmaSendWqe, SendGathersFromPointers) {
  const auto d =
      decode(wqe(WqeOpcode::SEND).data(0x1122334455667788, 100, 0x4201).data(0x9000, 28, 7));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_EQ(d.request.opcode, SendOpcode::kSend);
  EXPECT_TRUE(d.request.signaled);
  EXPECT_FALSE(d.request.solicited);
  EXPECT_FALSE(d.request.fence);
  EXPECT_FALSE(d.request.is_inline);
  ASSERT_EQ(d.request.sges.size(), 2u);
  EXPECT_EQ(d.request.sges[0].address, 0x1122334455667788u);
  EXPECT_EQ(d.request.sges[0].length, 100u);
  EXPECT_EQ(d.request.sges[0].lkey, rdma::MKey(0x4201));
  EXPECT_EQ(d.request.sges[1].length, 28u);
}

TEST(RdmaSendWqe, SendMayHaveNoDataSegmentAtAll) {
  const auto d = decode(wqe(WqeOpcode::SEND));
  EXPECT_EQ(d.fault, WqeFault::kNone);
  EXPECT_TRUE(d.request.sges.empty());
}

// PRM 7.4.4.1.4: "A byte count value of zero means 2Gbyte data transfer."
TEST(RdmaSendWqe, ByteCountZeroMeansTwoGibibytes) {
  const auto d = decode(wqe(WqeOpcode::SEND).data(0, 0, 1));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_EQ(d.request.sges[0].length, 1u << 31);
}

TEST(RdmaSendWqe, ControlSegmentGivesCompletionSolicitedAndFence) {
  const auto d = decode(wqe(WqeOpcode::SEND_IMM)
                            .unsignaled()
                            .control(CtrlSegment::se, 1)
                            .control(CtrlSegment::fm, static_cast<std::uint32_t>(Fence::FENCE))
                            .immediate(0xCAFEBABE));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_EQ(d.request.opcode, SendOpcode::kSendWithImmediate);
  EXPECT_FALSE(d.request.signaled);
  EXPECT_TRUE(d.request.solicited);
  EXPECT_TRUE(d.request.fence);
  EXPECT_EQ(d.request.immediate, 0xCAFEBABEu);
}

// IBTA 9.2.3: SENDs and WRITEs with immediate alone may set SE. Linux' rxe and qib clear it in
// others as well.
TEST(RdmaSendWqe, AWriteWithoutImmediateIsNotSolicited) {
  for (const auto& [opcode, solicited] :
       {std::pair{WqeOpcode::RDMA_WRITE, false}, std::pair{WqeOpcode::RDMA_WRITE_IMM, true}}) {
    const auto d = decode(wqe(opcode).control(CtrlSegment::se, 1).remote(0x1000, 0x100));
    ASSERT_EQ(d.fault, WqeFault::kNone);
    EXPECT_EQ(d.request.solicited, solicited);
  }
}

TEST(RdmaSendWqe, OnlyFencesThatWaitForAnswersAreFences) {
  for (const auto& [fence, waits] : {std::pair{Fence::NO_FENCE, false},
                                     {Fence::INITIATOR_SMALL, false},
                                     {Fence::FENCE, true},
                                     {Fence::STRONG_ORDERING, true},
                                     {Fence::SMALL_AND_FENCE, true}}) {
    const auto d =
        decode(wqe(WqeOpcode::SEND).control(CtrlSegment::fm, static_cast<std::uint32_t>(fence)));
    EXPECT_EQ(d.request.fence, waits) << static_cast<int>(fence);
  }
}

TEST(RdmaSendWqe, CompletionWithEventIsSignaledToo) {
  const auto with_event =
      SendWqeControl::parse(wqe(WqeOpcode::SEND).control(CtrlSegment::ce, 3).bytes());
  EXPECT_TRUE(is_signaled(with_event.completion));
  EXPECT_TRUE(has_event(with_event.completion));
  const auto on_error =
      SendWqeControl::parse(wqe(WqeOpcode::SEND).control(CtrlSegment::ce, 1).bytes());
  EXPECT_FALSE(is_signaled(on_error.completion));
  EXPECT_FALSE(has_event(on_error.completion));
}

TEST(RdmaSendWqe, SendWithInvalidateCarriesTheKey) {
  const auto d = decode(wqe(WqeOpcode::SEND_INVAL).immediate(0x1234'5678));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_EQ(d.request.opcode, SendOpcode::kSendWithInvalidate);
  EXPECT_EQ(d.request.immediate, 0x12345678u);
}

TEST(RdmaSendWqe, WriteAndReadHaveARemoteAddress) {
  for (const auto& [opcode, request] :
       {std::pair{WqeOpcode::RDMA_WRITE, SendOpcode::kRdmaWrite},
        {WqeOpcode::RDMA_WRITE_IMM, SendOpcode::kRdmaWriteWithImmediate},
        {WqeOpcode::RDMA_READ, SendOpcode::kRdmaRead}}) {
    const auto d = decode(wqe(opcode).remote(0xAABBCCDDEEFF0011, 0x99).data(0x1000, 4096, 0x77));
    ASSERT_EQ(d.fault, WqeFault::kNone);
    EXPECT_EQ(d.request.opcode, request);
    EXPECT_EQ(d.request.remote_address, 0xAABBCCDDEEFF0011u);
    EXPECT_EQ(d.request.rkey, rdma::MKey(0x99));
    ASSERT_EQ(d.request.sges.size(), 1u);
    EXPECT_EQ(d.request.sges[0].length, 4096u);
  }
}

TEST(RdmaSendWqe, AtomicsHaveTwoOperands) {
  for (const auto& [opcode, request] : {std::pair{WqeOpcode::ATOMIC_CS, SendOpcode::kCompareSwap},
                                        {WqeOpcode::ATOMIC_FA, SendOpcode::kFetchAdd}}) {
    const auto d =
        decode(wqe(opcode).remote(0x8000, 5).atomic(0x0102030405060708, 42).data(0x1000, 8, 6));
    ASSERT_EQ(d.fault, WqeFault::kNone);
    EXPECT_EQ(d.request.opcode, request);
    EXPECT_EQ(d.request.swap_add, 0x0102030405060708u);
    EXPECT_EQ(d.request.compare, 42u);
  }
}

TEST(RdmaSendWqe, InlineDataIsCopied) {
  const auto d = decode(wqe(WqeOpcode::SEND).inline_data("hello, world of inline data"));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_TRUE(d.request.is_inline);
  const auto& bytes = d.request.inline_data;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
            "hello, world of inline data");
}

// One segment takes a fast path. An empty one behind it leads to the slow path.
TEST(RdmaSendWqe, InlineDataInOneSegmentAreThoseOfSeveral) {
  for (std::size_t length = 1; length != 64; ++length) {
    std::string data(length, 'a');
    data.back() = 'z';
    const auto one = decode(wqe(WqeOpcode::SEND).inline_data(data));
    const auto two = decode(wqe(WqeOpcode::SEND).inline_data(data).inline_data(""));
    ASSERT_EQ(one.fault, WqeFault::kNone);
    ASSERT_EQ(two.fault, WqeFault::kNone);
    ASSERT_TRUE(one.request.is_inline && two.request.is_inline) << length;
    ASSERT_TRUE(std::ranges::equal(std::span<const std::byte>(one.request.inline_data),
                                   std::span<const std::byte>(two.request.inline_data)))
        << length;
    ASSERT_EQ(one.request.sges.size(), two.request.sges.size()) << length;
  }
}

TEST(RdmaSendWqe, SeveralInlineSegmentsFollowEachOther) {
  const auto d = decode(wqe(WqeOpcode::SEND).inline_data("twelve bytes").inline_data("x"));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_EQ(d.request.inline_data.size(), 13u);
}

// PRM 7.4.4.1.4: "can set inline segments with zero byte count to extend send WQE"
TEST(RdmaSendWqe, EmptyInlineSegmentsOnlyFillUp) {
  const auto d = decode(wqe(WqeOpcode::SEND).data(0x1000, 5, 1).inline_data("").inline_data(""));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_FALSE(d.request.is_inline);
  EXPECT_EQ(d.request.sges.size(), 1u);
}

// PRM 7.4.4.1.4: "They are distinguished by the value of bit 31 at offset 0", in each segment
// separately.
TEST(RdmaSendWqe, InlineDataAndPointersStayInTheirOrder) {
  const auto d = decode(wqe(WqeOpcode::SEND)
                            .inline_data("head")
                            .data(0x1000, 5, 7)
                            .inline_data("")
                            .inline_data("tail!"));
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_FALSE(d.request.is_inline);
  ASSERT_EQ(d.request.sges.size(), 3u);
  EXPECT_TRUE(d.request.sges[0].is_inline);
  EXPECT_EQ(d.request.sges[0].address, 0u);
  EXPECT_EQ(d.request.sges[0].length, 4u);
  EXPECT_FALSE(d.request.sges[1].is_inline);
  EXPECT_EQ(d.request.sges[1].lkey, rdma::MKey(7));
  EXPECT_TRUE(d.request.sges[2].is_inline);
  EXPECT_EQ(d.request.sges[2].address, 4u);
  EXPECT_EQ(d.request.sges[2].length, 5u);
  EXPECT_EQ(d.request.inline_data.size(), 9u);
}

TEST(RdmaSendWqe, NopNeedsNothingAndLooksAtNothing) {
  const auto d = decode(wqe(WqeOpcode::NOP).inline_data("junk", 1023));
  EXPECT_EQ(d.fault, WqeFault::kNone);
  EXPECT_EQ(d.request.opcode, SendOpcode::kNop);
}

TEST(RdmaSendWqe, DatagramSegmentBecomesTheDestination) {
  const auto mac = wire::MacAddress::from_u64(0x0200'0000'0007);
  const auto gid = wire::Gid::from_ipv4(0xC0A80A02);
  const auto d = decode(
      wqe(WqeOpcode::SEND).datagram(0x123456, 0x80010000, mac, gid, 9, true, 6).data(1, 2, 3),
      QpType::kUd);
  ASSERT_EQ(d.fault, WqeFault::kNone);
  EXPECT_EQ(d.request.ud.qpn, rdma::Qpn(0x123456));
  EXPECT_EQ(d.request.ud.qkey, 0x80010000u);
  EXPECT_EQ(d.request.ud.dst_mac, mac);
  EXPECT_EQ(d.request.ud.dst_gid, gid);
  EXPECT_EQ(d.request.ud.src_gid_index, 9);
  EXPECT_EQ(d.request.ud.hop_limit, 33);
  EXPECT_EQ(d.request.ud.vlan_priority, 6);
  EXPECT_EQ(d.request.ud.traffic_class, 0x48);
  EXPECT_EQ(d.request.ud.flow_label, 0xABCDEu);
  EXPECT_EQ(d.request.ud.udp_source_port, 0xC123);
  EXPECT_EQ(d.request.sges.size(), 1u);
}

TEST(RdmaSendWqe, CookieSurvivesPacking) {
  for (const auto ce : {WqeCompletion::ON_ERROR, WqeCompletion::ON_FIRST_ERROR, WqeCompletion::CQE,
                        WqeCompletion::CQE_AND_EQE}) {
    for (const bool ends_stale : {false, true}) {
      const SendCookie cookie{
          .index = 0xABCD, .opcode = 0x25, .completion = ce, .ends_stale = ends_stale};
      const auto again = SendCookie::unpack(cookie.pack());
      EXPECT_EQ(again.index, cookie.index);
      EXPECT_EQ(again.opcode, cookie.opcode);
      EXPECT_EQ(again.completion, cookie.completion);
      EXPECT_EQ(again.ends_stale, cookie.ends_stale);
    }
  }
}

TEST(RdmaSendWqe, BasicBlocksRoundUp) {
  for (const auto& [units, blocks] : {std::pair{1u, 1u}, {4u, 1u}, {5u, 2u}, {63u, 16u}}) {
    const auto control = SendWqeControl::parse(wqe(WqeOpcode::NOP).units(units).bytes());
    EXPECT_EQ(control.basic_blocks(), blocks) << units;
  }
  // The queue must get past a WQE whose size is 0.
  EXPECT_EQ(SendWqeControl::parse(wqe(WqeOpcode::NOP).units(0).bytes()).basic_blocks(), 1u);
}

TEST(RdmaSendWqe, EveryFaultHasWordsASectionAndItsNumber) {
  std::set<std::string_view> texts;
  for (int i = 1; i <= static_cast<int>(WqeFault::kNoXrcSegment); ++i) {
    const auto& info = describe(static_cast<WqeFault>(i));
    EXPECT_EQ(static_cast<int>(info.fault), i);
    EXPECT_FALSE(info.text.empty());
    EXPECT_FALSE(info.section.empty());
    EXPECT_TRUE(texts.insert(info.text).second) << info.text;
  }
}

// Malformed WQEs -------------------------------------------------------------------------------

struct Malformed {
  const char* name;
  WqeFault fault;
  WqeBuilder wqe;
  SendWqeRules rules;
};

class RdmaMalformedSendWqe : public ::testing::TestWithParam<Malformed> {};

TEST_P(RdmaMalformedSendWqe, IsReportedByItsReason) {
  const auto& p = GetParam();
  EXPECT_EQ(decode(p.wqe, p.rules).fault, p.fault) << describe(p.fault).text;
}

const auto kMac = wire::MacAddress::from_u64(1);
const auto kGid = wire::Gid::from_ipv4(1);

INSTANTIATE_TEST_SUITE_P(
    Table, RdmaMalformedSendWqe,
    ::testing::Values(
        Malformed{"WrongIndex", WqeFault::kWrongIndex, WqeBuilder(WqeOpcode::SEND, 0xFFFD, kQpn),
                  rules(QpType::kRc)},
        Malformed{"WrongQpn", WqeFault::kWrongQpn, WqeBuilder(WqeOpcode::SEND, kIndex, kQpn + 1),
                  rules(QpType::kRc)},
        Malformed{"UnknownOpcode", WqeFault::kUnknownOpcode, wqe(WqeOpcode(0x7F)),
                  rules(QpType::kRc)},
        Malformed{"LsoOnRc", WqeFault::kUnknownOpcode, wqe(WqeOpcode::LSO), rules(QpType::kRc)},
        Malformed{"BindMw", WqeFault::kUnknownOpcode, wqe(WqeOpcode::BIND_MW), rules(QpType::kRc)},
        Malformed{"ReadOnUc", WqeFault::kOpcodeForService,
                  wqe(WqeOpcode::RDMA_READ).remote(0, 0).data(0, 1, 0), rules(QpType::kUc)},
        Malformed{"AtomicOnUc", WqeFault::kOpcodeForService,
                  wqe(WqeOpcode::ATOMIC_FA).remote(0, 0).atomic(0, 0).data(0, 8, 0),
                  rules(QpType::kUc)},
        Malformed{"InvalidateOnUc", WqeFault::kOpcodeForService, wqe(WqeOpcode::SEND_INVAL),
                  rules(QpType::kUc)},
        Malformed{"WriteOnUd", WqeFault::kOpcodeForService, wqe(WqeOpcode::RDMA_WRITE).remote(0, 0),
                  rules(QpType::kUd)},
        Malformed{"MaskedOfNoSize", WqeFault::kAtomicOperandSize,
                  wqe(WqeOpcode::ATOMIC_MASKED_CS).remote(0, 0), rules(QpType::kRc)},
        Malformed{"MaskedCompareSwapWithoutMasks", WqeFault::kNoAtomicOperands,
                  wqe(WqeOpcode::ATOMIC_MASKED_CS).remote(0, 0).masked(8, {1, 2}),
                  rules(QpType::kRc)},
        Malformed{"MaskedFetchAddWithoutOperands", WqeFault::kNoAtomicOperands,
                  wqe(WqeOpcode::ATOMIC_MASKED_FA).remote(0, 0).masked(4, {}), rules(QpType::kRc)},
        Malformed{"Umr", WqeFault::kUmrShort, wqe(WqeOpcode::UMR), rules(QpType::kRc)},
        Malformed{"WriteWithoutAddress", WqeFault::kNoRemoteAddress, wqe(WqeOpcode::RDMA_WRITE),
                  rules(QpType::kRc)},
        Malformed{"AtomicWithoutAddress", WqeFault::kNoRemoteAddress, wqe(WqeOpcode::ATOMIC_FA),
                  rules(QpType::kRc)},
        Malformed{"AtomicWithoutOperands", WqeFault::kNoAtomicOperands,
                  wqe(WqeOpcode::ATOMIC_FA).remote(0, 0), rules(QpType::kRc)},
        Malformed{"DatagramWithoutAddress", WqeFault::kNoAddressVector,
                  wqe(WqeOpcode::SEND).data(0, 1, 0).data(0, 1, 0), rules(QpType::kUd)},
        Malformed{"ShortAddressVector", WqeFault::kShortAddressVector,
                  wqe(WqeOpcode::SEND).datagram(1, 1, kMac, kGid, 0, false), rules(QpType::kUd)},
        Malformed{"InlineRead", WqeFault::kInlineForRead,
                  wqe(WqeOpcode::RDMA_READ).remote(0, 0).inline_data("12345678"),
                  rules(QpType::kRc)},
        Malformed{"InlineAtomic", WqeFault::kInlineForRead,
                  wqe(WqeOpcode::ATOMIC_FA).remote(0, 0).atomic(0, 0).inline_data("12345678"),
                  rules(QpType::kRc)},
        Malformed{"InlinePastWqe", WqeFault::kInlineTooLong,
                  wqe(WqeOpcode::SEND).inline_data("hello", 13), rules(QpType::kRc)},
        Malformed{"InlineLongest", WqeFault::kInlineTooLong,
                  wqe(WqeOpcode::SEND).inline_data("hello", 1023), rules(QpType::kRc)},
        Malformed{"ReadIntoInlineToo", WqeFault::kInlineForRead,
                  wqe(WqeOpcode::RDMA_READ).remote(0, 0).data(0, 1, 0).inline_data("x"),
                  rules(QpType::kRc)},
        Malformed{"AtomicInTwoPieces", WqeFault::kAtomicLength,
                  wqe(WqeOpcode::ATOMIC_FA).remote(0, 0).atomic(0, 0).data(0, 4, 0).data(4, 4, 0),
                  rules(QpType::kRc)},
        Malformed{"AtomicsOff", WqeFault::kAtomicsOff,
                  wqe(WqeOpcode::ATOMIC_FA).remote(0, 0).atomic(0, 0).data(0, 8, 0),
                  SendWqeRules{.type = QpType::kRc, .qpn = rdma::Qpn(kQpn), .atomics = false}},
        Malformed{"XrcWithoutSrqn", WqeFault::kNoXrcSegment, wqe(WqeOpcode::SEND),
                  rules(QpType::kXrcInitiator)}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace softhca::connectx
