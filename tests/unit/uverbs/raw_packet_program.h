// A program with raw packet QPs and steering flows.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <span>

#include "uverbs/devx_program.h"

namespace softhca::uverbs {

inline constexpr std::uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;

class UverbsRawPacket : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(program_.reopen(true), 0);
    pd_ = program_.pd();
    page_ = program_.uar();
    cq_ = program_.create_cq(page_);
  }
  std::uint64_t record() const { return program_.memory() + Program::kMemory - kPage; }

  struct Qp {
    Errno wrong = 0;
    std::uint32_t handle = 0, number = 0;
    mlx5_ib_create_qp_resp told{};
  };
  Qp create_qp(std::uint32_t send_blocks, std::uint32_t receive_entries, std::uint32_t flags = 0) {
    Qp qp;
    mlx5_ib_create_qp own{};
    own.buf_addr = program_.memory() + 8 * kPage;
    own.sq_buf_addr = program_.memory() + 16 * kPage;
    own.db_addr = record() + record_offset_;
    own.sq_wqe_count = send_blocks;
    own.rq_wqe_count = receive_entries;
    own.rq_wqe_shift = receive_entries != 0 ? 4 : 0;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX | flags;
    own.bfreg_index = page_;
    ib_uverbs_qp_cap caps{};
    caps.max_recv_wr = receive_entries;
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    qp.wrong = call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
                   .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd_)
                   .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq_)
                   .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq_)
                   .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
                   .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
                   .in(UVERBS_ATTR_CREATE_QP_TYPE, std::uint32_t{IB_UVERBS_QPT_RAW_PACKET})
                   .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
                   .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qp.number)
                   .in(UVERBS_ATTR_UHW_IN, own)
                   .out(UVERBS_ATTR_UHW_OUT, qp.told)
                   .on(program_.context());
    qp.handle = call.made(0);
    return qp;
  }
  Errno modify(const Qp& qp, std::uint32_t mask, std::uint8_t state) {
    QpAttributes in{};
    in.qp_handle = qp.handle;
    in.attr_mask = mask;
    in.qp_state = state;
    in.port_num = 1;
    std::array<std::byte, 8> out{};
    return write_command(program_.context(), IB_USER_VERBS_CMD_MODIFY_QP, in, out);
  }
  /// Sends the extended form, with a rate limit.
  Errno limit(const Qp& qp, std::uint32_t mask, std::uint8_t state, std::uint32_t rate) {
    ib_uverbs_ex_modify_qp in{};
    in.base.qp_handle = qp.handle;
    in.base.attr_mask = mask;
    in.base.qp_state = state;
    in.base.port_num = 1;
    in.rate_limit = rate;
    ib_uverbs_ex_modify_qp_resp out{};
    return write_command(program_.context(),
                         IB_USER_VERBS_EX_CMD_MODIFY_QP | IB_USER_VERBS_CMD_FLAG_EXTENDED, in, out);
  }
  Errno destroy_qp(const Qp& qp) {
    ib_uverbs_destroy_qp_resp out{};
    return Call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
        .number(UVERBS_ATTR_DESTROY_QP_HANDLE, qp.handle)
        .out(UVERBS_ATTR_DESTROY_QP_RESP, out)
        .on(program_.context());
  }

  /// ibv_create_flow for frames to one MAC.
  struct Flow {
    std::uint32_t comp_mask = 0, qp_handle = 0;
    std::uint32_t type = 0;
    std::uint16_t size = 40, priority = 0;
    std::uint8_t count = 1, reserved[2] = {}, port = 1;
    std::uint32_t flags = 0;
    std::uint32_t spec_type = 0x20;
    std::uint16_t spec_size = 40, spec_reserved = 0;
    ib_uverbs_flow_eth_filter value{}, mask{};
  };
  Flow flow_to(const Qp& qp, std::uint8_t mac) {
    Flow flow;
    flow.qp_handle = qp.handle;
    flow.value.dst_mac[5] = mac;
    std::fill(std::begin(flow.mask.dst_mac), std::end(flow.mask.dst_mac), 0xff);
    return flow;
  }
  Errno create(const Flow& flow, std::uint32_t& handle) {
    ib_uverbs_create_flow_resp out{};
    const auto wrong =
        write_command(program_.context(), IB_USER_VERBS_EX_CMD_CREATE_FLOW | kExtended, flow, out);
    handle = out.flow_handle;
    return wrong;
  }
  Errno destroy_flow(std::uint32_t handle) {
    return Call(UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY)
        .number(UVERBS_ATTR_DESTROY_FLOW_HANDLE, handle)
        .on(program_.context());
  }

  /// mlx5dv_create_flow_matcher on the last byte of the destination.
  struct Matcher {
    Errno wrong = 0;
    std::uint32_t handle = 0;
  };
  Matcher matcher(std::uint64_t table, std::uint16_t priority = 0) {
    std::array<std::byte, 64> mask{};
    mask[5 + 4 * 2] = std::byte{0xff};
    Call call(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE);
    Matcher made;
    made.wrong = call.number(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, 0)
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, mask)
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, priority)
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, std::uint8_t{1})
                     .in(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, table)
                     .on(program_.context());
    made.handle = call.made(0);
    return made;
  }
  /// mlx5dv_create_flow. `more` adds the destination and other attributes.
  template <class More>
  Errno create_matched(const Matcher& matcher, std::uint8_t value, More&& more) {
    std::array<std::byte, 64> bytes{};
    bytes[5 + 4 * 2] = std::byte{value};
    Call call(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW);
    call.number(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, 0)
        .in(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, bytes)
        .number(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, matcher.handle);
    more(call);
    return call.on(program_.context());
  }
  static auto flags(std::uint32_t flags) {
    return [flags](Call& call) { call.in(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, flags); };
  }
  std::uint32_t create_counters() {
    Call call(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE);
    EXPECT_EQ(call.number(UVERBS_ATTR_CREATE_COUNTERS_HANDLE, 0).on(program_.context()), 0);
    return call.made(0);
  }
  Errno read_counters(std::uint32_t handle, std::span<std::uint64_t> values,
                      std::uint32_t flags = 0) {
    return Call(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ)
        .number(UVERBS_ATTR_READ_COUNTERS_HANDLE, handle)
        .add(UVERBS_ATTR_READ_COUNTERS_BUFF, static_cast<std::uint16_t>(values.size_bytes()),
             reinterpret_cast<std::uint64_t>(values.data()))
        .in(UVERBS_ATTR_READ_COUNTERS_FLAGS, flags)
        .on(program_.context());
  }
  /// ibv_create_flow of all frames to one MAC, with counters.
  Errno create_counting(const Qp& qp, std::uint32_t counters, std::uint32_t& flow,
                        std::uint32_t places = 2) {
    struct {
      Flow flow;
      std::uint32_t type = 0x1003;
      std::uint16_t size = 16, reserved = 0;
      std::uint32_t handle, reserved1 = 0;
    } in{.flow = flow_to(qp, 1), .handle = counters};
    in.flow.count = 2;
    in.flow.size += 16;
    const mlx5_ib_flow_counters_desc descriptions[] = {{0, 1}, {1, 0}};
    struct {
      std::uint32_t count = 1, reserved = 0;
      mlx5_ib_flow_counters_data data{};
    } own;
    own.data.counters_data = reinterpret_cast<std::uint64_t>(descriptions);
    own.data.ncounters = places;
    ib_uverbs_create_flow_resp out{};
    const auto wrong =
        Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
            .in(UVERBS_ATTR_WRITE_CMD, std::uint32_t{IB_USER_VERBS_EX_CMD_CREATE_FLOW | kExtended})
            .in(UVERBS_ATTR_CORE_IN, in)
            .out(UVERBS_ATTR_CORE_OUT, out)
            .in(UVERBS_ATTR_UHW_IN, own)
            .on(program_.context());
    flow = out.flow_handle;
    return wrong;
  }

  DevxProgram program_;
  std::uint32_t pd_ = 0, page_ = 0, cq_ = 0;
  std::uint64_t record_offset_ = 64;  ///< of a QP's record, from record()
};

}  // namespace softhca::uverbs
