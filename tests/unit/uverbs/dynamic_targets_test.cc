// DC targets, as libmlx5 creates them (mlx5dv_create_qp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "spec/connectx/dct.h"
#include "spec/connectx/qp.h"
#include "uverbs/device_command.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

constexpr std::uint32_t kAccess = 8, kPkey = 0x10, kPath = 0x80, kMtu = 0x100, kMinRnr = 0x8000;
constexpr std::uint32_t kToInit = kStateBit | kAccess | kPkey | kPortBit;
constexpr std::uint32_t kToRtr = kStateBit | kPath | kMtu | kMinRnr;

class UverbsDynamicTarget : public testing::Test {
 protected:
  /// With or without an SRQ.
  Errno create(bool with_srq, std::uint32_t flags = 0, std::uint16_t cqe_size = 64) {
    const auto pd = program_.pd();
    std::uint32_t cq = 0;
    EXPECT_EQ(program_.create_cq(program_.uar(), {.entry_size = cqe_size}, cq), 0);
    mlx5_ib_create_qp own{};
    own.flags = MLX5_QP_FLAG_TYPE_DCT | flags;
    own.access_key = 0x1234;
    mlx5_ib_create_qp_resp answer{};
    ib_uverbs_qp_cap caps{};
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_DRIVER})
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number_)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer);
    if (with_srq) {
      std::uint32_t srq = 0;
      EXPECT_EQ(program_.create_srq(pd, {}, srq), 0);
      call.number(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, srq);
    }
    const auto wrong = call.on(program_.context());
    handle_ = call.made(0);
    return wrong;
  }
  /// Stores the returned DCT number in number_.
  Errno modify(std::uint32_t mask, std::uint8_t state) {
    QpAttributes in{};
    in.qp_handle = handle_;
    in.attr_mask = mask;
    in.qp_state = state;
    in.port_num = 1;
    in.path_mtu = 3;
    in.dest.is_global = in.dest.port_num = 1;
    ib_uverbs_ex_modify_qp_resp out{};
    mlx5_ib_modify_qp_resp own{};
    const auto wrong =
        Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
            .in(UVERBS_ATTR_WRITE_CMD,
                std::uint32_t{IB_USER_VERBS_EX_CMD_MODIFY_QP | IB_USER_VERBS_CMD_FLAG_EXTENDED})
            .in(UVERBS_ATTR_CORE_IN, in)
            .out(UVERBS_ATTR_CORE_OUT, out)
            .out(UVERBS_ATTR_UHW_OUT, own)
            .on(program_.context());
    if (wrong == 0 && own.response_length >= 8) number_ = own.dctn;
    return wrong;
  }
  Errno query(std::uint32_t mask, ib_uverbs_query_qp_resp& out) {
    const std::array<std::uint32_t, 4> in{0, 0, handle_, mask};
    return write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_QP, in, out);
  }
  std::uint8_t state() {
    ib_uverbs_query_qp_resp out{};
    EXPECT_EQ(query(kStateBit, out), 0);
    return out.qp_state;
  }

  Program program_;
  std::uint32_t handle_ = 0, number_ = 0;
};

TEST_F(UverbsDynamicTarget, HasItsNumberFromReadyToReceiveOn) {
  ASSERT_EQ(create(true), 0);
  EXPECT_EQ(number_, 0u);
  EXPECT_EQ(modify(kToInit, kInitState), 0);
  EXPECT_EQ(number_, 0u);
  EXPECT_EQ(modify(kToRtr, kRtrState), 0);
  EXPECT_NE(number_, 0u);
  EXPECT_EQ(state(), kRtrState);
  // The device gets the object back: ~Program checks it.
}

// create_dct of mlx5_ib.
TEST_F(UverbsDynamicTarget, ShortDataAreInCqesOf128Bytes) {
  using Responder = softhca::spec::connectx::qp_cs_res;
  const auto asks = [&](std::uint32_t flags, std::uint16_t cqe_size) {
    EXPECT_EQ(create(true, flags, cqe_size), 0);
    EXPECT_EQ(modify(kToInit, kInitState), 0);
    EXPECT_EQ(modify(kToRtr, kRtrState), 0);
    Command<spec::query_dct_in> in(spec::command_opcode::QUERY_DCT);
    in.set(spec::query_dct_in::dctn, number_);
    const auto out = program_.device().commands().execute<spec::query_dct_out>(in);
    EXPECT_TRUE(out);
    if (!out) return Responder::UP_TO_32B;
    const auto dct = out->get(spec::query_dct_out::dct_context_entry);
    return static_cast<Responder>(dct.get(spec::dctc::cs_res));
  };
  EXPECT_EQ(asks(MLX5_QP_FLAG_SCATTER_CQE, 128), Responder::UP_TO_64B);
  EXPECT_EQ(asks(MLX5_QP_FLAG_SCATTER_CQE, 64), Responder::DISABLE);
  EXPECT_EQ(asks(0, 128), Responder::DISABLE) << "MLX5_SCATTER_TO_CQE=0";
}

// libmlx5 asks for as many scatter entries as fill a WQE of a power of two.
TEST_F(UverbsDynamicTarget, ASharedQueueHasAsManyScatterEntriesAsAreAnnounced) {
  const auto pd = program_.pd();
  std::uint32_t srq = 0;
  EXPECT_EQ(program_.create_srq(pd, {.sges = 31}, srq), 0);
  EXPECT_EQ(program_.create_srq(pd, {.sges = 32}, srq), EINVAL);
}

// process_vendor_flags of mlx5_ib.
TEST_F(UverbsDynamicTarget, FlagsOfOtherQpsAreInvalidOrIgnored) {
  EXPECT_EQ(create(true, MLX5_QP_FLAG_SIGNATURE), 0);
  EXPECT_EQ(create(true, MLX5_QP_FLAG_UAR_PAGE_INDEX), 0);
  EXPECT_EQ(create(true, MLX5_QP_FLAG_TUNNEL_OFFLOADS), EINVAL);
  EXPECT_EQ(create(true, MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC), EINVAL);
}

TEST_F(UverbsDynamicTarget, ReceivesFromASharedQueueAlone) { EXPECT_EQ(create(false), EINVAL); }

TEST_F(UverbsDynamicTarget, TakesEachStepWithItsAttributesAndNoOther) {
  ASSERT_EQ(create(true), 0);
  EXPECT_EQ(modify(kToRtr, kRtrState), EINVAL);
  EXPECT_EQ(modify(kToInit & ~kPkey, kInitState), EINVAL);
  EXPECT_EQ(modify(kToInit, kInitState), 0);
  EXPECT_EQ(modify(kToRtr & ~kMtu, kRtrState), EINVAL);
  EXPECT_EQ(modify(kToRtr | kPortBit, kRtrState), EINVAL);
  EXPECT_EQ(modify(kToRtr, kRtsState), EINVAL);
  EXPECT_EQ(modify(kStateBit, kErrorState), EINVAL);
  EXPECT_EQ(modify(kToRtr, kRtrState), 0);
  EXPECT_EQ(modify(kToRtr, kRtrState), EINVAL);
}

// check_qp_attr of mlx5_ib: it refuses receives, also a scatter entry without them.
TEST(UverbsDynamicInitiator, AsksForNoReceives) {
  Program program;
  const auto pd = program.pd();
  const auto page = program.uar();
  const auto cq = program.create_cq(page);
  mlx5_ib_create_qp own{};
  own.buf_addr = program.memory() + 8 * kPage;
  own.db_addr = program.memory() + Program::kMemory - kPage + 64;
  own.sq_wqe_count = 16;
  own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_TYPE_DCI;
  own.bfreg_index = page;
  const auto create = [&](std::uint32_t receives, std::uint32_t entries) {
    ib_uverbs_qp_cap caps{};
    caps.max_send_wr = 4;
    caps.max_recv_wr = receives;
    caps.max_recv_sge = entries;
    own.rq_wqe_count = receives;
    own.rq_wqe_shift = receives != 0 ? 4 : 0;
    mlx5_ib_create_qp_resp answer{};
    std::uint32_t number = 0;
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
        .number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_DRIVER})
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer)
        .on(program.context());
  };
  EXPECT_EQ(create(16, 1), EINVAL);
  EXPECT_EQ(create(0, 1), EINVAL);
  EXPECT_EQ(create(0, 0), 0);
}

// mlx5_ib_dct_query_qp.
TEST_F(UverbsDynamicTarget, IsReportedOnceTheDeviceHasItAndAsFarAsItIsAskedFor) {
  ib_uverbs_query_qp_resp out{};
  ASSERT_EQ(create(true), 0);
  ASSERT_EQ(modify(kToInit, kInitState), 0);
  EXPECT_EQ(query(kStateBit, out), EINVAL) << "there is nothing to ask";
  ASSERT_EQ(modify(kToRtr, kRtrState), 0);
  EXPECT_EQ(query(kStateBit | 0x200, out), EINVAL) << "it has no timeout";
  ASSERT_EQ(query(kStateBit | kMtu, out), 0);
  EXPECT_EQ(out.qp_state, kRtrState);
  EXPECT_EQ(out.path_mtu, 3);
  EXPECT_EQ(out.port_num, 0) << "not asked for";
  ASSERT_EQ(query(kPortBit, out), 0);
  EXPECT_EQ(out.port_num, 1);
}

// IBTA 11.6.3. Each packet would cost a fault and a new page otherwise.
TEST_F(UverbsDynamicTarget, MemoryOfASharedQueueThatGoesIsReported) {
  enum : std::uint32_t { kCqError = 0, kSrqError = 14 };  // ib_event_type
  Call alloc(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
  ASSERT_EQ(alloc.number(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0).on(program_.context()), 0);
  const int file = static_cast<int>(alloc.made(0));
  const auto events = [file] {
    std::vector<std::uint32_t> types;
    ib_uverbs_async_event_desc event{};
    for (pollfd ready{.fd = file, .events = POLLIN, .revents = 0}; ::poll(&ready, 1, 0) == 1;) {
      EXPECT_EQ(::read(file, &event, sizeof event), ssize_t{sizeof event});
      types.push_back(event.event_type);
    }
    return types;
  };
  ASSERT_EQ(create(true), 0);
  ASSERT_EQ(modify(kToInit, kInitState), 0);
  ASSERT_EQ(modify(kToRtr, kRtrState), 0);
  for (int times = 0; times != 2; ++times) {
    program_.context().lose_memory(program_.memory() + 16 * 4096, true);
  }
  EXPECT_THAT(events(), testing::ElementsAre(kSrqError)) << "once";
  ib_uverbs_query_qp_resp out{};
  EXPECT_EQ(query(kStateBit, out), EINVAL) << "its DCT has gone";
  for (int times = 0; times != 2; ++times) {
    program_.context().lose_memory(program_.memory(), true);
  }
  EXPECT_THAT(events(), testing::ElementsAre(kCqError)) << "once";
  ::close(file);
}

TEST_F(UverbsDynamicTarget, IsDestroyedByItsHandle) {
  ASSERT_EQ(create(true), 0);
  ASSERT_EQ(modify(kToInit, kInitState), 0);
  ASSERT_EQ(modify(kToRtr, kRtrState), 0);
  ib_uverbs_destroy_qp_resp out{};
  EXPECT_EQ(Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
                .number(UVERBS_ATTR_DESTROY_QP_HANDLE, handle_)
                .out(UVERBS_ATTR_DESTROY_QP_RESP, out)
                .on(program_.context()),
            0);
}

}  // namespace
}  // namespace softhca::uverbs
