// Commands for RoCE addresses and multicast groups (mlx5 driver interface 7.8, 7.10).
#include <gtest/gtest.h>

#include "connectx/qp/qp_command_host.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {
namespace {

TEST_F(RdmaQpCommands, RoceAddressIsKeptAndDeleted) {
  const auto set = [&](std::uint32_t index, const rdma::Gid& gid, roce_version version) {
    const auto out = host_.call<set_roce_address_out, set_roce_address_in>(
        Opcode::SET_ROCE_ADDRESS, [&](auto in) {
          in.set(set_roce_address_in::roce_address_index, index);
          const auto entry = in.sub(set_roce_address_in::roce_address);
          std::ranges::copy(gid.bytes, entry.sub(roce_address::source_l3_address).begin());
          entry.set(roce_address::vlan_valid, 1);
          entry.set(roce_address::vlan_id, 100);
          entry.set(roce_address::roce_version, static_cast<std::uint32_t>(version));
        });
    return out.status();
  };
  auto& gids = host_.device.driver().rdma().gids();
  const auto gid = rdma::Gid::from_ipv4(0x0A000001);
  EXPECT_EQ(set(7, gid, roce_version::V2), Status::OK);
  ASSERT_NE(gids.get(7), nullptr);
  EXPECT_EQ(gids.get(7)->gid, gid);
  EXPECT_EQ(gids.get(7)->vlan_id, 100);
  EXPECT_TRUE(gids.get(7)->roce_v2);
  const auto out = host_.call<query_roce_address_out, query_roce_address_in>(
      Opcode::QUERY_ROCE_ADDRESS,
      [](auto in) { in.set(query_roce_address_in::roce_address_index, 7); });
  const auto entry = out.as<query_roce_address_out>().get(query_roce_address_out::roce_address);
  EXPECT_EQ(entry.get(roce_address::vlan_id), 100u);
  EXPECT_EQ(rdma::Gid::from(entry.get(roce_address::source_l3_address)), gid);

  EXPECT_EQ(set(8, gid, roce_version::V1), Status::OK);
  EXPECT_FALSE(gids.get(8)->roce_v2);
  EXPECT_EQ(set(7, rdma::Gid{}, roce_version::V1), Status::OK);
  EXPECT_EQ(gids.get(7), nullptr) << "all zero deletes";
  EXPECT_EQ(set(256, gid, roce_version::V2), Status::BAD_INDEX);
  EXPECT_EQ(set(7, gid, roce_version(1)), Status::BAD_PARAM);
}

TEST_F(RdmaQpCommands, OnlyDatagramQpsJoinMulticastGroups) {
  const auto attach = [&](const HostQp& qp, std::uint32_t address, bool in_group = true) {
    const auto fill = [&](auto in) {
      in.set(attach_to_mcg_in::qpn, qp.qpn);
      const auto gid = rdma::Gid::from_ipv4(address);
      std::ranges::copy(gid.bytes, in.sub(attach_to_mcg_in::multicast_gid).begin());
    };
    const auto out =
        in_group ? host_.call<attach_to_mcg_out, attach_to_mcg_in>(Opcode::ATTACH_TO_MCG, fill)
                 : host_.call<attach_to_mcg_out, attach_to_mcg_in>(Opcode::DETACH_FROM_MCG, fill);
    return out.status();
  };
  const auto ud = host_.create_qp({.service = service_type::UD});
  const auto rc = host_.create_qp();
  EXPECT_EQ(attach(rc, 0xEF010101), Status::BAD_PARAM);
  EXPECT_EQ(attach(ud, 0x0A000001), Status::BAD_PARAM) << "not a multicast address";
  EXPECT_EQ(attach(ud, 0xEF010101), Status::OK);
  EXPECT_EQ(attach(ud, 0xEF010101), Status::OK) << "again changes nothing";
  EXPECT_EQ(attach(ud, 0xEF010101, false), Status::OK);
  EXPECT_EQ(attach(ud, 0xEF010101, false), Status::BAD_RESOURCE);
}
}  // namespace
}  // namespace softhca::connectx
