// Receive queues, receive side scaling, and CQE fields that describe a frame (PRM 3.3, 7.5, 7.7,
// 7.12.1.1).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "connectx/base/resources.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet_host.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/port/vport.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;
using RqState = spec::connectx::rq_state;

class EthernetReceive : public ::testing::Test {
 protected:
  EthernetReceive() : cqn(host.create_cq()), rqn(host.create_rq(cqn)) {
    host.steer_all_to(host.create_direct_tir(rqn));
  }

  /// The CQE of a successful receive.
  util::View<cqe64> completion() {
    last = host.poll(cqn);
    EXPECT_FALSE(last.empty());
    last.resize(64);
    const util::View<cqe64> view(last);
    EXPECT_EQ(view.get(cqe64::opcode), static_cast<unsigned>(cqe_opcode::RESPONDER_SEND));
    EXPECT_EQ(view.get(cqe64::srqn_user_index), 0x12345u);
    return view;
  }
  void expect_error(std::uint16_t counter, cqe_syndrome syndrome, rdma::Reason reason) {
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    const util::View<cqe_error> view(cqe);
    EXPECT_EQ(view.get(cqe_error::opcode), static_cast<unsigned>(cqe_opcode::RESPONDER_ERROR));
    EXPECT_EQ(view.get(cqe_error::syndrome), static_cast<unsigned>(syndrome));
    EXPECT_EQ(view.get(cqe_error::hw_error_syndrome), static_cast<unsigned>(reason));
    // The number that hardware uses, if it is known.
    const unsigned vendor_err = syndrome == cqe_syndrome::LOCAL_PROTECTION_ERROR ? 0x32u
                                : syndrome == cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR
                                    ? 0xF9u
                                    : static_cast<unsigned>(reason);
    EXPECT_EQ(view.get(cqe_error::vendor_error_syndrome), vendor_err);
    EXPECT_EQ(view.get(cqe_error::wqe_counter), counter);
  }
  Reply modify(RqState from, RqState to, std::uint64_t mask = 0, bool vsd = false) {
    return host.call<modify_rq_out, modify_rq_in>(Opcode::MODIFY_RQ, [&](auto in) {
      in.set(modify_rq_in::rqn, rqn);
      in.set(modify_rq_in::rq_state, static_cast<std::uint32_t>(from));
      in.set(modify_rq_in::modify_bitmask, mask);
      const auto context = in.sub(modify_rq_in::rq_context);
      context.set(rq_context::state, static_cast<std::uint32_t>(to));
      context.set(rq_context::vlan_strip_disable, vsd);
    });
  }

  EthernetHost host;
  std::uint32_t cqn;
  std::uint32_t rqn;
  Bytes last;
};

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

// Checksums --------------------------------------------------------------------------------------

class EthernetReceiveChecksum : public EthernetReceive,
                                public ::testing::WithParamInterface<std::tuple<bool, bool, bool>> {
};

TEST_P(EthernetReceiveChecksum, ChecksumFieldCoversIpHeaderAndPayload) {
  const auto [ipv6, udp, vlan] = GetParam();
  const FrameSpec spec{.ipv6 = ipv6, .udp = udp, .vlan_tci = vlan ? 0x2064 : -1, .payload = 301};
  auto frame = make_frame(spec);
  fix_checksums(frame, spec);
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::checksum), slow_sum(std::span(frame).subspan(vlan ? 18 : 14)));
  EXPECT_EQ(cqe.get(cqe64::l2_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l3_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l3_hdr_type), ipv6 ? 1u : 2u);
  EXPECT_EQ(cqe.get(cqe64::l4_hdr_type), udp ? 2u : 4u);
  EXPECT_EQ(cqe.get(cqe64::ip_frag), 0u);
  EXPECT_EQ(cqe.get(cqe64::cv), vlan ? 1u : 0u);
}
INSTANTIATE_TEST_SUITE_P(Kinds, EthernetReceiveChecksum,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                                            ::testing::Bool()));

TEST_F(EthernetReceive, WrongL4ChecksumIsNotOk) {
  const FrameSpec spec{.payload = 100};
  auto frame = make_frame(spec);
  fix_checksums(frame, spec);
  frame.back() ^= std::byte{1};
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::l3_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 0u);
  EXPECT_EQ(cqe.get(cqe64::checksum), slow_sum(std::span(frame).subspan(14)));
}

TEST_F(EthernetReceive, ChecksumFieldCoversPaddingToo) {
  const FrameSpec spec{.udp = true, .payload = 3};
  auto frame = make_frame(spec);
  fix_checksums(frame, spec);
  ASSERT_EQ((frame.size() - 14) % 2, 1u);
  while (frame.size() < 70) frame.push_back(std::byte(frame.size()));
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::checksum), slow_sum(std::span(frame).subspan(14)));
}

TEST_F(EthernetReceive, UnrecognizedPacketHasNoHeaderTypes) {
  Bytes arp(60);
  std::ranges::fill(std::span(arp).first(6), std::byte{0xFF});
  util::store_be16(arp.data() + 12, 0x0806);
  host.post_receive(rqn, 2048);
  host.arrive(arp);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::l2_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l3_ok), 0u);
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 0u);
  EXPECT_EQ(cqe.get(cqe64::l3_hdr_type), 0u);
  EXPECT_EQ(cqe.get(cqe64::l4_hdr_type), 0u);
}

// VLAN -------------------------------------------------------------------------------------------

TEST_F(EthernetReceive, VlanTagIsStrippedAndReported) {
  const auto buffer = host.post_receive(rqn, 2048);
  host.arrive(make_frame({.vlan_tci = 0xB064, .payload = 200}));
  const auto expected = make_frame({.payload = 200});
  EXPECT_EQ(host.read(buffer, expected.size()), expected);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::byte_cnt), expected.size());
  EXPECT_EQ(cqe.get(cqe64::cv), 1u);
  EXPECT_EQ(cqe.get(cqe64::up), 5u);
  EXPECT_EQ(cqe.get(cqe64::cfi), 1u);
  EXPECT_EQ(cqe.get(cqe64::vid), 100u);
}

TEST_F(EthernetReceive, VlanTagStaysIfStrippingIsDisabled) {
  EXPECT_TRUE(modify(RqState::RDY, RqState::RDY, 2, true).ok());
  const auto buffer = host.post_receive(rqn, 2048);
  const auto frame = make_frame({.vlan_tci = 0xB064, .payload = 200});
  host.arrive(frame);
  EXPECT_EQ(host.read(buffer, frame.size()), frame);
  EXPECT_EQ(completion().get(cqe64::cv), 0u);
}

// cqe_checksum_full: the sum covers all bytes after the Ethernet header, as delivered.
TEST_F(EthernetReceive, ATagThatStaysCountsInTheChecksum) {
  EXPECT_TRUE(modify(RqState::RDY, RqState::RDY, 2, true).ok());
  host.post_receive(rqn, 2048);
  const auto frame = make_frame({.vlan_tci = 0xB064, .payload = 200});
  host.arrive(frame);
  EXPECT_EQ(completion().get(cqe64::checksum), slow_sum(std::span(frame).subspan(14)));
}

TEST_F(EthernetReceive, AnInnerTagCountsInTheChecksum) {
  auto frame = make_frame({.vlan_tci = 7, .payload = 200});
  const auto inner = frame;
  const Bytes tag{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{9}};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  EXPECT_EQ(completion().get(cqe64::checksum), slow_sum(std::span(inner).subspan(14)));
}

TEST_F(EthernetReceive, OnlyTheOuterTagIsStripped) {
  auto frame = make_frame({.vlan_tci = 7, .payload = 50});
  const auto inner = frame;
  const Bytes tag{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{9}};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  const auto buffer = host.post_receive(rqn, 2048);
  host.arrive(frame);
  EXPECT_EQ(host.read(buffer, inner.size()), inner);
  EXPECT_EQ(completion().get(cqe64::vid), 9u);
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

// Receive side scaling ---------------------------------------------------------------------------

class EthernetRss : public ::testing::Test {
 protected:
  EthernetRss() : cqn(host.create_cq(8)) {
    for (auto& rqn : rqns) {
      rqn = host.create_rq(cqn, 6, 4);
      for (int i = 0; i < 40; ++i) host.post_receive(rqn, 256);
    }
  }
  std::uint32_t create_tir(rx_hash_fn function, std::uint32_t fields, bool udp = false) {
    const auto rqtn = host.create_rqt({rqns.begin(), rqns.end()});
    const auto answer = host.call<create_tir_out, create_tir_in>(Opcode::CREATE_TIR, [&](auto in) {
      const auto context = in.sub(create_tir_in::tir_context);
      context.set(tir_context::disp_type, static_cast<unsigned>(tir_disp_type::INDIRECT));
      context.set(tir_context::indirect_table, rqtn);
      context.set(tir_context::transport_domain, host.transport_domain);
      context.set(tir_context::rx_hash_fn, static_cast<unsigned>(function));
      std::ranges::copy(kKey, context.sub(tir_context::rx_hash_toeplitz_key).begin());
      const auto selector = context.sub(tir_context::rx_hash_field_selector_outer);
      selector.set(rx_hash_field_select::selected_fields, fields);
      selector.set(rx_hash_field_select::l4_prot_type, udp);
    });
    EXPECT_TRUE(answer.ok()) << answer.reason();
    return answer.as<create_tir_out>().get(create_tir_out::tirn);
  }
  util::View<cqe64> completion() {
    last = host.poll(cqn);
    EXPECT_FALSE(last.empty());
    last.resize(64);
    return util::View<cqe64>(last);
  }

  /// The key of Microsoft's verification suite for RSS.
  static constexpr std::array<std::byte, 40> kKey = [] {
    constexpr unsigned char raw[] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                     0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                     0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                     0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
    std::array<std::byte, 40> key{};
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = std::byte{raw[i]};
    return key;
  }();

  EthernetHost host;
  std::uint32_t cqn;
  std::array<std::uint32_t, 4> rqns{};
  Bytes last;
};

TEST_F(EthernetRss, HashResultAndTypeAreReportedAndChooseTheQueue) {
  host.steer_all_to(create_tir(rx_hash_fn::TOEPLITZ, 0xF));
  // 66.9.149.187:2794 to 161.142.100.80:1766 hashes to 0x51ccc178.
  host.arrive(make_frame({.source_port = 2794,
                          .destination_port = 1766,
                          .source_ip = 0x420995BB,
                          .destination_ip = 0xA18E6450}));
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::rx_hash_result), 0x51ccc178u);
  EXPECT_EQ(cqe.get(cqe64::rx_hash_type), 0x55u);  // IPv4 addresses and TCP ports
  EXPECT_EQ(host.received(rqns[0x51ccc178 % 4]), 1u);
}

TEST_F(EthernetRss, AddressesAloneMayBeSelected) {
  host.steer_all_to(create_tir(rx_hash_fn::TOEPLITZ, 0x3));
  host.arrive(make_frame({.udp = true, .source_ip = 0x420995BB, .destination_ip = 0xA18E6450}));
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::rx_hash_result), 0x323e8fc2u);
  EXPECT_EQ(cqe.get(cqe64::rx_hash_type), 0x05u);
}

TEST_F(EthernetRss, FlowsAreSpreadOverAllQueues) {
  host.steer_all_to(create_tir(rx_hash_fn::INVERTED_XOR8, 0xF));
  for (std::uint16_t port = 0; port < 64; ++port) host.arrive(make_frame({.source_port = port}));
  for (const auto rqn : rqns) EXPECT_EQ(host.received(rqn), 16u);
}

TEST_F(EthernetRss, PacketsWithoutTheFieldsGoToTheFirstQueue) {
  host.steer_all_to(create_tir(rx_hash_fn::TOEPLITZ, 0xF));
  Bytes arp(60);
  util::store_be16(arp.data() + 12, 0x0806);
  host.arrive(arp);
  EXPECT_EQ(completion().get(cqe64::rx_hash_type), 0u);
  EXPECT_EQ(host.received(rqns[0]), 1u);
}

TEST_F(EthernetRss, ModifiedTableTakesEffectAtOnce) {
  const auto tirn = create_tir(rx_hash_fn::TOEPLITZ, 0xF);
  host.steer_all_to(tirn);
  const auto answer = host.call<query_tir_out, query_tir_in>(
      Opcode::QUERY_TIR, [&](auto in) { in.set(query_tir_in::tirn, tirn); });
  const auto rqtn =
      answer.as<query_tir_out>().get(query_tir_out::tir_context).get(tir_context::indirect_table);
  const auto modify = [&](std::size_t queue, std::uint64_t mask) {
    Bytes list(4);
    util::store_be32(list.data(), rqns[queue]);
    return host
        .call<modify_rqt_out, modify_rqt_in>(
            Opcode::MODIFY_RQT,
            [&](auto in) {
              in.set(modify_rqt_in::rqtn, rqtn);
              util::store_be64(in.sub(modify_rqt_in::modify_bitmask).bytes().data(), mask);
              in.sub(modify_rqt_in::rqt_context).set(rqt_context::rqt_actual_size, 1);
            },
            list)
        .status();
  };
  EXPECT_EQ(modify(3, 1), Status::OK);
  EXPECT_EQ(modify(2, 0), Status::OK) << "the list is not named";
  for (const unsigned bit : {1u, 32u, 63u}) {
    EXPECT_EQ(modify(2, std::uint64_t{1} << bit | 1), Status::BAD_PARAM) << "unknown bit " << bit;
  }
  for (std::uint16_t port = 0; port < 20; ++port) host.arrive(make_frame({.source_port = port}));
  EXPECT_EQ(host.received(rqns[3]), 20u);
}

}  // namespace
}  // namespace softhca::connectx::test
