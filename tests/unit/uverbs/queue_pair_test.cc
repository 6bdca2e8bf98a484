// QPs in memory of a program, and their states (host-door contract 4.7, 4.8).
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "spec/connectx/qp.h"
#include "uverbs/device_command.h"
#include "uverbs/program.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint32_t kMaxReads = 0x2000;
/// The masks of ibv_rc_pingpong, on the way to INIT, RTR and RTS.
constexpr std::uint32_t kToInit = 0x39, kToRtr = 0x129181, kToRts = 0x12e01;

class UverbsQueuePair : public testing::Test {
 protected:
  UverbsQueuePair() {
    EXPECT_EQ(program_.get_context(false), 0);
    page_ = program_.uar();
    const auto pd = program_.pd();
    const auto cq = create_cq();
    qp_ = create_qp(pd, cq);
  }
  std::uint64_t at(std::uint64_t page) const { return program_.memory() + page * 4096; }
  std::uint32_t create_cq() {
    mlx5_ib_create_cq own{};
    own.buf_addr = at(1);
    own.db_addr = at(60);
    own.cqe_size = 64;
    own.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    own.uar_page_index = static_cast<std::uint16_t>(page_);
    mlx5_ib_create_cq_resp numbers{};
    std::uint32_t last = 0;
    Call call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    call.number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
        .in(UVERBS_ATTR_CREATE_CQ_CQE, std::uint32_t{32})
        .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
        .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
        .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, numbers);
    EXPECT_EQ(call.on(program_.context()), 0);
    return call.made(0);
  }
  std::uint32_t create_qp(std::uint32_t pd, std::uint32_t cq) {
    mlx5_ib_create_qp own{};
    own.buf_addr = at(8);
    own.db_addr = at(61);
    own.sq_wqe_count = own.rq_wqe_count = 16;
    own.rq_wqe_shift = 6;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
    own.bfreg_index = page_;
    mlx5_ib_create_qp_resp answer{};
    ib_uverbs_qp_cap caps{};
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_RC})
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number_)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer);
    EXPECT_EQ(call.on(program_.context()), 0);
    return call.made(0);
  }
  /// As ibv_rc_pingpong has them.
  QpAttributes to(std::uint8_t state, std::uint32_t mask) const {
    QpAttributes in{};
    in.qp_handle = qp_;
    in.attr_mask = mask;
    in.qp_state = state;
    in.port_num = 1;
    in.path_mtu = 3;
    in.dest.is_global = 1;
    in.dest_qp_num = 0x100;
    in.timeout = 14;
    in.retry_cnt = in.rnr_retry = 7;
    in.max_rd_atomic = in.max_dest_rd_atomic = 1;
    return in;
  }
  Errno modify(const QpAttributes& in) {
    std::array<std::byte, 8> out{};
    return write_command(program_.context(), IB_USER_VERBS_CMD_MODIFY_QP, in, out);
  }

  Program program_;
  std::uint32_t page_ = 0, qp_ = 0, number_ = 0;
};

// mlx5_ib_modify_qp of Linux.
TEST_F(UverbsQueuePair, NoMoreReadsAreUnderWayThanTheDeviceCanHave) {
  ASSERT_EQ(modify(to(1, kToInit)), 0);
  auto receives = to(2, kToRtr);
  for (const std::uint8_t reads : {17, 129, 255}) {
    receives.max_dest_rd_atomic = reads;
    EXPECT_EQ(modify(receives), EINVAL) << unsigned{reads};
  }
  receives.max_dest_rd_atomic = 16;
  ASSERT_EQ(modify(receives), 0);
  auto sends = to(3, kToRts);
  sends.max_rd_atomic = 255;
  EXPECT_EQ(modify(sends), EINVAL);
  sends.attr_mask &= ~kMaxReads;
  EXPECT_EQ(modify(sends), 0) << "what is not meant is not looked at";
}

// mlx5_ib has a set of each port, for what `rdma statistic` shows.
TEST_F(UverbsQueuePair, CountsInTheSetOfItsDevice) {
  ASSERT_NE(program_.device().counter_set(), 0);
  for (const auto& step : {to(1, kToInit), to(2, kToRtr), to(3, kToRts)}) {
    ASSERT_EQ(modify(step), 0);
    Command<spec::query_qp_in> ask(spec::command_opcode::QUERY_QP);
    ask.set(spec::query_qp_in::qpn, number_);
    const auto told = program_.device().commands().execute<spec::query_qp_out>(ask);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->sub(spec::query_qp_out::qpc).get(spec::qpc::counter_set_id),
              program_.device().counter_set());
  }
}

}  // namespace
}  // namespace softhca::uverbs
