// The device attributes that a program gets, number by number, as mlx5_ib reports them for a
// ConnectX-4 with the limits of docs/connectx-limits.md. If a number is too large, a program that
// relies on it is refused later.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <climits>
#include <utility>

#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

class UverbsDeviceAttributes : public testing::Test {
 protected:
  ib_uverbs_ex_query_device_resp extended(mlx5_ib_query_device_resp& own) {
    ib_uverbs_ex_query_device_resp out{};
    EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
                  .in(UVERBS_ATTR_WRITE_CMD, std::uint32_t{IB_USER_VERBS_EX_CMD_QUERY_DEVICE |
                                                           IB_USER_VERBS_CMD_FLAG_EXTENDED})
                  .in(UVERBS_ATTR_CORE_IN, std::uint64_t{0})
                  .out(UVERBS_ATTR_CORE_OUT, out)
                  .out(UVERBS_ATTR_UHW_OUT, own)
                  .on(program_.context()),
              0);
    return out;
  }

  Program program_;
};

TEST_F(UverbsDeviceAttributes, LimitsAreThoseOfTheDevice) {
  ib_uverbs_query_device_resp out{};
  ASSERT_EQ(
      write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_DEVICE, std::uint64_t{0}, out), 0);
  EXPECT_EQ(out.vendor_part_id, 4115u);
  EXPECT_EQ(out.max_mr_size, UINT64_MAX);
  EXPECT_EQ(out.page_size_cap, 0xfffffffffffff000u);
  EXPECT_EQ(out.max_qp, 131072u);
  EXPECT_EQ(out.max_sge, 30u);
  EXPECT_EQ(out.max_sge_rd, 30u);
  EXPECT_EQ(out.max_cq, 65536u);
  EXPECT_EQ(out.max_cqe, 4194303u);
  EXPECT_EQ(out.max_mr, 1048576u);
  EXPECT_EQ(out.max_mw, 1048576u);
  EXPECT_EQ(out.max_pd, 65536u);
  EXPECT_EQ(out.max_qp_rd_atom, 16u);
  EXPECT_EQ(out.max_qp_init_rd_atom, 16u);
  EXPECT_EQ(out.max_res_rd_atom, 16u * 131072);
  EXPECT_EQ(out.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_EQ(out.max_ah, std::uint32_t{INT_MAX});
  EXPECT_EQ(out.max_srq, 65536u);
  EXPECT_EQ(out.max_srq_wr, 32767u);
  EXPECT_EQ(out.max_mcast_grp, 8192u);
  EXPECT_EQ(out.max_mcast_qp_attach, 240u);
  EXPECT_EQ(out.max_total_mcast_qp_attach, 8192u * 240);
  EXPECT_EQ(out.local_ca_ack_delay, 16u);
  EXPECT_EQ(out.phys_port_cnt, 1u);
  EXPECT_EQ(out.node_guid, 0x0100000000000000u) << "in the order of the network";
  EXPECT_EQ(out.sys_image_guid, out.node_guid);
  EXPECT_EQ(out.fw_ver >> 32, 12u);
}

TEST_F(UverbsDeviceAttributes, TheExtendedOnesHaveTheOthersAndReportPagingHashesAndClocks) {
  mlx5_ib_query_device_resp own{};
  const auto out = extended(own);
  EXPECT_EQ(out.response_length, sizeof out);
  EXPECT_EQ(out.base.max_qp, 131072u);
  EXPECT_EQ(out.device_cap_flags_ex, out.base.device_cap_flags);
  EXPECT_EQ(out.timestamp_mask, std::uint64_t{INT64_MAX});
  EXPECT_EQ(out.hca_core_clock, 156250u);
  EXPECT_EQ(out.odp_caps.general_caps, std::uint64_t{IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT});
  EXPECT_EQ(
      out.odp_caps.per_transport_caps.rc_odp_caps,
      std::uint32_t{IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                    IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV});
  EXPECT_EQ(out.odp_caps.per_transport_caps.uc_odp_caps, 0u);
  EXPECT_EQ(out.odp_caps.per_transport_caps.ud_odp_caps, std::uint32_t{IBV_ODP_SUPPORT_SEND});
  EXPECT_EQ(out.xrc_odp_caps, out.odp_caps.per_transport_caps.rc_odp_caps);
  EXPECT_EQ(out.raw_packet_caps,
            std::uint32_t{IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM});
  EXPECT_EQ(out.rss_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
  EXPECT_EQ(out.rss_caps.max_rwq_indirection_tables, 4096u);
  EXPECT_EQ(out.rss_caps.max_rwq_indirection_table_size, 2048u);
  EXPECT_EQ(out.max_wq_type_rq, 65536u);
  EXPECT_EQ(out.cq_moderation_caps.max_cq_moderation_count, 0xffff);
  EXPECT_EQ(out.cq_moderation_caps.max_cq_moderation_period, 0xfff);
}

TEST_F(UverbsDeviceAttributes, TheDriversOwnReportSegmentationCompressionAndHashes) {
  mlx5_ib_query_device_resp own{};
  (void)extended(own);
  EXPECT_EQ(own.response_length, offsetof(mlx5_ib_query_device_resp, sw_parsing_caps));
  EXPECT_EQ(own.flags, std::uint32_t{MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD |
                                     MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT});
  EXPECT_EQ(own.tso_caps.max_tso, 262144u);
  EXPECT_EQ(own.tso_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
  EXPECT_EQ(own.cqe_comp_caps.max_num, 64u);
  EXPECT_EQ(own.cqe_comp_caps.supported_format,
            std::uint32_t{MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM});
  EXPECT_EQ(own.rss_caps.rx_hash_fields_mask, 0xff | MLX5_RX_HASH_INNER);
  EXPECT_EQ(own.rss_caps.rx_hash_function, std::uint8_t{MLX5_RX_HASH_FUNC_TOEPLITZ});
}

TEST_F(UverbsDeviceAttributes, AContextReportsItsLimitsWhenItIsMadeAndWhenItIsAsked) {
  mlx5_ib_alloc_ucontext_req_v2 wanted{};
  wanted.max_cqe_version = 1;
  wanted.lib_caps = MLX5_LIB_CAP_DYN_UAR;
  mlx5_ib_alloc_ucontext_resp made{}, asked{};
  std::uint32_t vectors = 0;
  std::uint64_t flags = 0;
  const auto file = program_.open_file();
  ASSERT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
                .out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, vectors)
                .out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, flags)
                .in(UVERBS_ATTR_UHW_IN, wanted)
                .out(UVERBS_ATTR_UHW_OUT, made)
                .on(*file),
            0);
  EXPECT_EQ(vectors, 1u);
  EXPECT_EQ(flags, 1u) << "IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS";
  vectors = 0;
  flags = 0;
  ASSERT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT)
                .out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, vectors)
                .out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, flags)
                .out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, asked)
                .on(*file),
            0);
  EXPECT_EQ(vectors, 1u);
  EXPECT_EQ(flags, 1u);
  for (const auto& told : {made, asked}) {
    EXPECT_EQ(told.qp_tab_size, 131072u);
    EXPECT_EQ(told.bf_reg_size, 0u);
    EXPECT_EQ(told.tot_bfregs, 0u);
    EXPECT_EQ(told.cache_line_size, 64u);
    EXPECT_EQ(told.max_sq_desc_sz, 1024u);
    EXPECT_EQ(told.max_rq_desc_sz, 512u);
    EXPECT_EQ(told.max_send_wqebb, 32768u);
    EXPECT_EQ(told.max_recv_wr, 32768u);
    EXPECT_EQ(told.max_srq_recv_wr, 32767u);
    EXPECT_EQ(told.num_ports, 1u);
    EXPECT_EQ(told.response_length, sizeof told);
    EXPECT_EQ(told.cqe_version, 1u);
    EXPECT_EQ(told.eth_min_inline, std::uint8_t{MLX5_USER_INLINE_MODE_L2});
    EXPECT_EQ(told.log_uar_size, 12u);
    EXPECT_EQ(told.num_uars_per_page, 1u);
    EXPECT_EQ(told.clock_info_versions, 1u << MLX5_IB_CLOCK_INFO_V1);
  }
}

TEST_F(UverbsDeviceAttributes, ThePortIsAnEthernetPortOfAHundredGigabit) {
  ib_uverbs_query_port_resp_ex out{};
  const auto query = [&](std::uint8_t number) {
    return Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
        .in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, number)
        .out(UVERBS_ATTR_QUERY_PORT_RESP, out)
        .on(program_.context());
  };
  EXPECT_EQ(query(2), EINVAL);
  ASSERT_EQ(query(1), 0);
  const auto& port = out.legacy_resp;
  EXPECT_EQ(port.max_msg_sz, 1u << 30);
  EXPECT_EQ(port.gid_tbl_len, 256u);
  EXPECT_EQ(port.pkey_tbl_len, 1u);
  EXPECT_EQ(port.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.phys_state, 5u);
  EXPECT_EQ(port.active_width, 2u);
  EXPECT_EQ(port.active_speed, 32u);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
}

// mlx5_query_port_roce: packets with the longest headers, 96 bytes, fit the interface.
TEST_F(UverbsDeviceAttributes, TheMtuIsWhatFitsTheInterface) {
  const std::pair<unsigned, ibv_mtu> pairs[] = {
      {65536, IBV_MTU_4096}, {4192, IBV_MTU_4096}, {4191, IBV_MTU_2048}, {1500, IBV_MTU_1024},
      {1119, IBV_MTU_512},   {352, IBV_MTU_256},   {0, IBV_MTU_4096}};
  for (const auto& [mtu, active] : pairs) {
    program_.interface_mtu = mtu;
    ib_uverbs_query_port_resp_ex out{};
    EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                  .in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, std::uint8_t{1})
                  .out(UVERBS_ATTR_QUERY_PORT_RESP, out)
                  .on(program_.context()),
              0);
    EXPECT_EQ(out.legacy_resp.active_mtu, active) << mtu;
    EXPECT_EQ(out.legacy_resp.max_mtu, IBV_MTU_4096) << mtu;
  }
}

}  // namespace
}  // namespace softhca::uverbs
