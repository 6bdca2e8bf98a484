// RSS QPs (kernel interface 4.7, 4.12): what mlx5_ib makes of their hashes, and what it refuses.
#include <gtest/gtest.h>

#include <cerrno>

#include "spec/connectx/raw_queues.h"
#include "uverbs/device_command.h"
#include "uverbs/raw_packet_program.h"

namespace softhca::uverbs {
namespace {

class UverbsScaling : public UverbsRawPacket {
 protected:
  void SetUp() override {
    UverbsRawPacket::SetUp();
    std::uint32_t wq = 0;
    ASSERT_EQ(program_.create_wq(pd_, cq_, {}, wq), 0);
    const struct {
      std::uint32_t comp_mask, log_size, queues[2];
    } in{.comp_mask = 0, .log_size = 1, .queues = {wq, wq}};
    ib_uverbs_ex_create_rwq_ind_table_resp out{};
    ASSERT_EQ(write_command(program_.context(), IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL | kExtended,
                            in, out),
              0);
    table_ = out.ind_tbl_handle;
  }

  struct Wanted {
    std::uint64_t fields = MLX5_RX_HASH_SRC_IPV4;
    std::uint32_t driver_flags = 0, comp_mask = 0;
    std::uint32_t create_flags = 0;
    std::uint32_t sends = 0;
    std::uint32_t type = IB_UVERBS_QPT_RAW_PACKET;
  };
  Errno create(const Wanted& wanted) {
    mlx5_ib_create_qp_rss own{};
    own.rx_hash_fields_mask = wanted.fields;
    own.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ;
    own.rx_key_len = 40;
    own.comp_mask = wanted.comp_mask;
    own.flags = wanted.driver_flags;
    ib_uverbs_qp_cap caps{};
    caps.max_send_wr = wanted.sends;
    std::uint32_t number = 0;
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd_)
        .number(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, table_)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, wanted.type)
        .in(UVERBS_ATTR_CREATE_QP_FLAGS, wanted.create_flags)
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, told_);
    if (wanted.sends != 0) call.number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq_);
    const auto wrong = call.on(program_.context());
    handle_ = call.made(0);
    return wrong;
  }
  struct Hash {
    bool symmetric = false;
    std::uint32_t fields = 0;
  };
  /// The hash of the QP that was made last, in the device.
  Hash hash() {
    Command<spec::query_tir_in> in(spec::command_opcode::QUERY_TIR);
    in.set(spec::query_tir_in::tirn, told_.tirn);
    const auto out = program_.device().commands().execute<spec::query_tir_out>(in);
    EXPECT_TRUE(out);
    if (!out) return {};
    const auto tir = out->get(spec::query_tir_out::tir_context);
    return {.symmetric = tir.get(spec::tir_context::rx_hash_symmetric) != 0,
            .fields = tir.get(spec::tir_context::rx_hash_field_selector_outer)
                          .get(spec::rx_hash_field_select::selected_fields)};
  }

  std::uint32_t table_ = 0, handle_ = 0;
  mlx5_ib_create_qp_resp told_{};
};

// create_rss_raw_qp_tir. A program that wants both directions of a connection in one queue gives a
// symmetric key.
TEST_F(UverbsScaling, TheHashIsThatOfTheKeyAlone) {
  ASSERT_EQ(create({.fields = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4}), 0);
  EXPECT_FALSE(hash().symmetric);
  EXPECT_EQ(hash().fields,
            bit(spec::rx_hash_field_bit::SRC_IP) | bit(spec::rx_hash_field_bit::DST_IP));
}

// IBV_RX_HASH_IPSEC_SPI.
TEST_F(UverbsScaling, TheIndexOfIpsecIsHashedAsAPortIs) {
  ASSERT_EQ(create({.fields = MLX5_RX_HASH_IPSEC_SPI}), 0);
  EXPECT_EQ(hash().fields, bit(spec::rx_hash_field_bit::IPSEC_SPI));
  EXPECT_EQ(create({.fields = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_IPSEC_SPI}), 0);
  EXPECT_EQ(create({.fields = MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_IPSEC_SPI}), EINVAL);
  EXPECT_EQ(create({.fields = MLX5_RX_HASH_DST_PORT_UDP | MLX5_RX_HASH_IPSEC_SPI}), EINVAL);
  EXPECT_EQ(create({.fields = MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_UDP}), EINVAL);
}

// process_create_flags and process_vendor_flags of mlx5_ib.
TEST_F(UverbsScaling, FlagsOfQueuesAreRefused) {
  EXPECT_EQ(create({.create_flags = IB_UVERBS_QP_CREATE_CVLAN_STRIPPING}), EINVAL);
  EXPECT_EQ(create({.create_flags = IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK}), EINVAL);
  EXPECT_EQ(create({.create_flags = 1u << 31}), EINVAL);
  EXPECT_EQ(create({.create_flags = IB_UVERBS_QP_CREATE_SQ_SIG_ALL}), 0) << "not the driver's";
  EXPECT_EQ(create({.driver_flags = MLX5_QP_FLAG_TUNNEL_OFFLOADS}), EINVAL);
  EXPECT_EQ(create({.driver_flags = MLX5_QP_FLAG_ALLOW_SCATTER_CQE}), EINVAL);
  EXPECT_EQ(create({.driver_flags = MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC}), 0);
  EXPECT_EQ(create({.comp_mask = 1}), EOPNOTSUPP);
}

// check_qp_attr and check_valid_flow of mlx5_ib.
TEST_F(UverbsScaling, ItReceivesRawPacketsAndSendsNothing) {
  EXPECT_EQ(create({.sends = 16}), EINVAL);
  EXPECT_EQ(create({.type = IB_UVERBS_QPT_UD}), EINVAL);
  EXPECT_EQ(create({}), 0);
}

// mlx5_ib_modify_qp, mlx5_ib_query_qp. It has no peer, so ib_core resolves no address for it.
TEST_F(UverbsScaling, ItHasNoStatesAndNoPeer) {
  ASSERT_EQ(create({}), 0);
  program_.knows_macs = false;
  QpAttributes in{};
  in.qp_handle = handle_;
  in.attr_mask = kQpState | kQpPath;
  in.qp_state = kQpInit;
  in.dest.is_global = in.dest.port_num = 1;
  const auto peer = driver::Gid::from_ipv4(198, 18, 0, 2);
  std::memcpy(in.dest.dgid, peer.bytes.data(), sizeof in.dest.dgid);
  std::array<std::byte, 8> out{};
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_MODIFY_QP, in, out), ENOSYS);
  const std::array<std::uint32_t, 4> ask{0, 0, handle_, kQpState};
  ib_uverbs_query_qp_resp now{};
  EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_QP, ask, now), ENOSYS);
}

}  // namespace
}  // namespace softhca::uverbs
