// A program with a QP in its memory, which it moves from state to state.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "driver/connectx/message.h"
#include "spec/connectx/qp.h"
#include "uverbs/device_command.h"
#include "uverbs/program.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

/// The masks that ibv_rc_pingpong uses for INIT, RTR and RTS.
inline constexpr std::uint32_t kPingpongInit = 0x39, kPingpongRtr = 0x129181,
                               kPingpongRts = 0x12e01;

class UverbsQueuePair : public testing::Test {
 protected:
  explicit UverbsQueuePair(bool devx = false) {
    EXPECT_EQ(program_.reopen(devx), 0);
    page_ = program_.uar();
    pd_ = program_.pd();
    cq_ = create_cq();
    qp_ = create_qp(pd_, cq_);
  }
  std::uint64_t at(std::uint64_t page) const { return program_.memory() + page * 4096; }
  std::uint32_t create_cq(std::uint16_t cqe_size = 64) {
    std::uint32_t handle = 0;
    EXPECT_EQ(
        program_.create_cq(
            page_, {.entries = 32, .begin = 4096, .record = 60ull * 4096, .entry_size = cqe_size},
            handle),
        0);
    return handle;
  }
  std::uint32_t create_qp(std::uint32_t pd, std::uint32_t cq) {
    std::uint32_t handle = 0;
    EXPECT_EQ(make_qp(pd, cq, IB_UVERBS_QPT_RC, 0, handle), 0);
    return handle;
  }
  Errno make_qp(std::uint32_t pd, std::uint32_t cq, std::uint32_t type, std::uint32_t flags,
                std::uint32_t& handle) {
    mlx5_ib_create_qp own{};
    own.buf_addr = at(8);
    own.db_addr = at(61) + record_offset_;
    own.sq_wqe_count = own.rq_wqe_count = 16;
    own.rq_wqe_shift = 6;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX | driver_flags_;
    own.bfreg_index = page_;
    mlx5_ib_create_qp_resp answer{};
    ib_uverbs_qp_cap caps{};
    caps.max_recv_wr = own.rq_wqe_count;
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, type)
        .in(UVERBS_ATTR_CREATE_QP_FLAGS, flags)
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number_)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer);
    const auto wrong = call.on(program_.context());
    handle = call.made(0);
    return wrong;
  }
  /// The attributes of ibv_rc_pingpong.
  QpAttributes to(std::uint8_t state, std::uint32_t mask) const {
    QpAttributes in{};
    in.qp_handle = qp_;
    in.attr_mask = mask;
    in.qp_state = state;
    in.port_num = 1;
    in.path_mtu = 3;
    in.dest.is_global = in.dest.port_num = 1;
    const auto peer = driver::Gid::from_ipv4(198, 18, 0, 2);
    std::memcpy(in.dest.dgid, peer.bytes.data(), sizeof in.dest.dgid);
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

  ib_uverbs_query_qp_resp query() {
    const std::array<std::uint32_t, 4> in{0, 0, qp_, 0};
    ib_uverbs_query_qp_resp out{};
    EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_QP, in, out), 0);
    return out;
  }
  /// Reads the QP's context in the device by `get`.
  template <class Get>
  auto of_context(Get&& get) {
    driver::connectx::Request<spec::query_qp_in> ask(spec::command_opcode::QUERY_QP);
    ask.set(spec::query_qp_in::qpn, number_);
    const auto told = program_.device().commands().execute<spec::query_qp_out>(ask);
    EXPECT_TRUE(told);
    return get(told->sub(spec::query_qp_out::qpc));
  }
  /// A field of the QP's context, or of its address path, in the device.
  template <class Field>
  std::uint32_t in_device(Field field) {
    return of_context([&](const auto& qp) { return std::uint32_t{qp.get(field)}; });
  }
  template <class Field>
  std::uint32_t path_in_device(Field field) {
    return of_context([&](const auto& qp) {
      return std::uint32_t{qp.get(spec::qpc::primary_address_path).get(field)};
    });
  }
  void set_destination(QpAttributes& in, const driver::Gid& gid) {
    std::memcpy(in.dest.dgid, gid.bytes.data(), sizeof in.dest.dgid);
  }

  Program program_;
  std::uint32_t page_ = 0, pd_ = 0, cq_ = 0, qp_ = 0, number_ = 0;
  std::uint64_t record_offset_ = 0;
  std::uint32_t driver_flags_ = 0;  ///< of MLX5_QP_FLAG_*
};

}  // namespace softhca::uverbs
