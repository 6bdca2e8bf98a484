// Receive side scaling: the hash of a frame (TIR, PRM 7.5), and the queue that it chooses (RQ
// table, PRM 7.8).
#include <gtest/gtest.h>

#include <algorithm>

#include "connectx/ethernet/ethernet_host.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

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
