// The address vectors of QPs: the checks of ib_core and mlx5_ib (kernel interface 4.8).
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "uverbs/queue_pair_program.h"
#include "uverbs/route.h"

namespace softhca::uverbs {
namespace {

// ib_uverbs_modify_qp: the address vector's port must be the QP's.
TEST_F(UverbsQueuePair, AnAddressVectorIsOfThePortOfTheQp) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  auto in = to(2, kPingpongRtr);
  for (const std::uint8_t port : {0, 2, 255}) {
    in.dest.port_num = port;
    EXPECT_EQ(modify(in), EINVAL) << unsigned{port};
  }
}

// rdma_fill_sgid_attr, rdma_addr_find_l2_eth_by_grh, mlx5r_ib_rate.
TEST_F(UverbsQueuePair, AWayThatLeadsNowhereIsRefusedAsLinuxDoes) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  auto in = to(2, kPingpongRtr);
  in.dest.sgid_index = 200;
  EXPECT_EQ(modify(in), ENODATA) << "no GID";
  in = to(2, kPingpongRtr);
  in.dest.is_global = 0;
  EXPECT_EQ(modify(in), EINVAL) << "RoCE wants a GRH";
  in = to(2, kPingpongRtr);
  set_destination(in, {});
  EXPECT_EQ(modify(in), EINVAL) << "IPv6, from an IPv4 address";
  set_destination(in, driver::Gid::from_ipv4(0, 0, 0, 0));
  EXPECT_EQ(modify(in), ENODEV);
  for (const std::uint8_t rate : {1, 24, 255}) {
    in = to(2, kPingpongRtr);
    in.dest.static_rate = rate;
    EXPECT_EQ(modify(in), EINVAL) << unsigned{rate};
  }
  program_.knows_macs = false;
  in = to(2, kPingpongRtr);
  EXPECT_EQ(modify(in), ETIMEDOUT);
  set_destination(in, driver::Gid::from_ipv4(255, 255, 255, 255));
  EXPECT_EQ(modify(in), 0) << "all have an address";
}

// rdma_get_gid_attr: a QP holds the GID entry of its address path.
TEST_F(UverbsQueuePair, KeepsTheEntryOfItsAddress) {
  ASSERT_EQ(modify(to(1, kPingpongInit)), 0);
  ASSERT_EQ(modify(to(2, kPingpongRtr)), 0);
  ASSERT_TRUE(program_.device().set_gid(0, std::nullopt));
  EXPECT_FALSE(program_.device().is_gid_free(0));
  EXPECT_TRUE(program_.device().is_gid_free(1));
  program_.close();
  EXPECT_TRUE(program_.device().is_gid_free(0));
}

// rdma_flow_label_to_udp_sport and rdma_calc_flow_label: both ends compute the same port.
TEST(UverbsRoute, TheSourcePortIsOfTheLabelOrOfBothNumbers) {
  EXPECT_EQ(udp_source_port(0xABCDE, 1, 2), 0xC000 | ((0xABCDE & 0x3fff) ^ (0xABCDE >> 14)));
  EXPECT_EQ(udp_source_port(0, 0x1234, 0x77), udp_source_port(0, 0x77, 0x1234));
  EXPECT_NE(udp_source_port(0, 0x1234, 0x77), udp_source_port(0, 0x1235, 0x77));
}

}  // namespace
}  // namespace softhca::uverbs
