// Send queues and the frames that they put on the wire (PRM 3.3, 7.4.4, 7.9).
#include <gtest/gtest.h>

#include <algorithm>

#include "connectx/ethernet/send_host.h"
#include "connectx/port/network_port.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

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

}  // namespace
}  // namespace softhca::connectx::test
