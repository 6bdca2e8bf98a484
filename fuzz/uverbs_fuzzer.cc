// A program that calls the door in every way: calls like libibverbs's with any sizes, handles,
// flags and states, malformed calls, and doorbells, with any bytes in its queues.
//
// Its pointers are into its own memory, or wrong. The device reaches no other memory. Whatever it
// does, a call returns 0 or an errno, the device keeps working, and closing the file returns all
// objects to the device.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "util/log.h"
#include "uverbs_devx.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::kExtended;
using fuzz::Script;
using uverbs::Call;
using uverbs::Program;

class Caller final : public fuzz::UverbsDevx {
 public:
  using UverbsDevx::UverbsDevx;

  void play() {
    while (!script_.empty()) {
      const fuzz::Turn turn;
      step();
    }
    run();
  }

 private:
  void step() {
    switch (script_.byte() % 27) {
      case 0:
        return any_call();
      case 1:
        return write(IB_USER_VERBS_CMD_ALLOC_PD, std::uint64_t{0});
      case 2:
        return reg_mr();
      case 3:
        return create_cq();
      case 4:
        return create_qp();
      case 5:
      case 6:
        return modify_qp();
      case 7:
        return destroy();
      case 8:
        return create_srq();
      case 9:
        return work();
      case 10:
        return any_write();
      case 11: {
        ib_uverbs_create_ah in{};
        in.pd_handle = handle(UVERBS_OBJECT_PD);
        in.attr.is_global = script_.byte() & 1;
        in.attr.grh.sgid_index = script_.byte();
        return write(IB_USER_VERBS_CMD_CREATE_AH, in);
      }
      case 12: {
        struct {
          std::uint64_t response = 0;
          std::uint32_t pd, type;
        } in{.pd = handle(UVERBS_OBJECT_PD), .type = script_.byte()};
        return write(IB_USER_VERBS_CMD_ALLOC_MW, in);
      }
      case 13: {
        struct {
          std::uint64_t response = 0;
          std::uint32_t handle, mask;
        } in{.handle = handle(UVERBS_OBJECT_QP), .mask = script_.byte()};
        return write(IB_USER_VERBS_CMD_QUERY_QP, in);
      }
      case 14:
        return program_.context().lose_memory(address() & ~std::uint64_t{4095}, script_.byte() & 1);
      case 15:
        return run();
      case 16:
        return devx_memory();
      case 17:
        return devx_make();
      case 18:
        return devx_command();
      case 19:
        return devx_subscribe();
      case 20:
        return flow();
      case 21:
      case 22:
        return method_call();
      case 23:
        return receive_table();
      case 24:
        return change();
      case 25:
        return matcher();
      case 26:
        return change_file();
    }
  }

  void reg_mr() {
    ib_uverbs_reg_mr_resp out{};
    const auto begin = address();
    const auto pd = handle(UVERBS_OBJECT_PD);
    const auto size = script_.word() * 4u;
    const auto wrong = program_.reg_mr(pd, begin, size, script_.byte(), out);
    served(wrong);
    if (wrong != 0) return;
    note_made(UVERBS_OBJECT_MR, out.mr_handle);
  }

  void create_cq() {
    mlx5_ib_create_cq own{};
    own.buf_addr = address();
    own.db_addr = address();
    own.cqe_size = script_.byte() & 1 ? 64 : 128;
    own.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    own.uar_page_index = static_cast<std::uint16_t>(page_ + (script_.byte() == 0));
    mlx5_ib_create_cq_resp numbers{};
    std::uint32_t last = 0;
    const auto entries = power();
    Call call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    call.number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
        .in(UVERBS_ATTR_CREATE_CQ_CQE, entries)
        .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
        .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
        .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, numbers);
    if (const auto how = script_.byte(); (how & 1) != 0) {
      call.number(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, descriptor());
    }
    make(call, UVERBS_OBJECT_CQ);
  }

  void create_qp() {
    static constexpr std::uint32_t kTypes[] = {2, 3, 4, 8, 9, 10, 255, 7};
    mlx5_ib_create_qp own{};
    own.buf_addr = address();
    own.db_addr = address();
    own.sq_buf_addr = own.buf_addr;
    own.sq_wqe_count = power();
    own.rq_wqe_count = power();
    own.rq_wqe_shift = 4 + script_.byte() % 4;
    own.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX | (script_.byte() & 1 ? script_.word() : 0u);
    own.bfreg_index = page_;
    own.uidx = script_.byte();
    mlx5_ib_create_qp_resp answer{};
    ib_uverbs_qp_cap caps{.max_send_wr = own.sq_wqe_count,
                          .max_recv_wr = own.rq_wqe_count,
                          .max_send_sge = 1,
                          .max_recv_sge = 1,
                          .max_inline_data = 0};
    std::uint32_t number = 0;
    const auto type = script_.byte();
    Call call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    call.number(UVERBS_ATTR_CREATE_QP_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, handle(UVERBS_OBJECT_PD))
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, handle(UVERBS_OBJECT_CQ))
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, handle(UVERBS_OBJECT_CQ))
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, kTypes[type % 8])
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer);
    if ((type & 0x80) != 0) {
      call.number(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, handle(UVERBS_OBJECT_SRQ));
    }
    if ((type & 0x40) != 0) {
      call.number(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, handle(UVERBS_OBJECT_XRCD));
    }
    make(call, UVERBS_OBJECT_QP);
    if (number != 0) last_qpn_ = number;
  }

  void modify_qp() {
    // The masks of ibv_rc_pingpong (kernel interface 4.8), and others.
    static constexpr std::uint32_t kMasks[] = {0x39, 0x129181, 0x12e01, 0x71, 1, 0x10001};
    uverbs::QpAttributes in{};
    const auto how = script_.byte();
    in.qp_handle = handle(UVERBS_OBJECT_QP);
    in.attr_mask = kMasks[how % 6] ^ ((how & 0x80) != 0 ? script_.dword() : 0u);
    in.qp_state = static_cast<std::uint8_t>(how % 6 < 3 ? 1 + how % 3 : script_.byte() % 8);
    in.port_num = 1;
    in.path_mtu = 1 + script_.byte() % 6;
    in.dest.is_global = 1;
    in.dest_qp_num = (how & 0x40) != 0 ? script_.dword() : last_qpn_;
    in.timeout = script_.byte();
    in.retry_cnt = in.rnr_retry = script_.byte();
    in.max_rd_atomic = in.max_dest_rd_atomic = script_.byte();
    in.qp_access_flags = 15;
    write(IB_USER_VERBS_CMD_MODIFY_QP, in);
  }

  void create_srq() {
    mlx5_ib_create_srq own{};
    own.buf_addr = address();
    own.db_addr = address();
    mlx5_ib_create_srq_resp numbers{};
    std::uint32_t max_wr = 0, max_sge = 0;
    const auto type = script_.byte();
    Call call(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
    call.number(UVERBS_ATTR_CREATE_SRQ_HANDLE, 0)
        .number(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, handle(UVERBS_OBJECT_PD))
        .in(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, std::uint64_t{8})
        .in(UVERBS_ATTR_CREATE_SRQ_MAX_WR, power())
        .in(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, power())
        .in(UVERBS_ATTR_CREATE_SRQ_LIMIT, std::uint32_t{script_.byte()})
        .in(UVERBS_ATTR_CREATE_SRQ_TYPE, std::uint32_t{type % 4u})
        .out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, max_wr)
        .out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, max_sge)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, numbers);
    if ((type & 4) != 0) {
      call.number(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, handle(UVERBS_OBJECT_XRCD))
          .number(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, handle(UVERBS_OBJECT_CQ));
    }
    make(call, UVERBS_OBJECT_SRQ);
  }

  void destroy() {
    struct Kind {
      std::uint16_t object, method, attribute, answer;
    };
    static constexpr Kind kKinds[] = {
        {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, UVERBS_ATTR_DESTROY_PD_HANDLE, 0},
        {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, UVERBS_ATTR_DESTROY_MR_HANDLE, 0},
        {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, UVERBS_ATTR_DESTROY_MW_HANDLE, 0},
        {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, UVERBS_ATTR_DESTROY_AH_HANDLE, 0},
        {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, UVERBS_ATTR_DESTROY_CQ_HANDLE, 8},
        {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, UVERBS_ATTR_DESTROY_QP_HANDLE, 4},
        {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, UVERBS_ATTR_DESTROY_SRQ_HANDLE, 4},
        {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, UVERBS_ATTR_DESTROY_XRCD_HANDLE, 0},
        {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, UVERBS_ATTR_DESTROY_FLOW_HANDLE, 0},
        {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, UVERBS_ATTR_DESTROY_WQ_HANDLE, 4},
        {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY,
         UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, 0},
        {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
         MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, 0},
        {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG,
         MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, 0},
    };
    const auto& kind = kKinds[script_.byte() % std::size(kKinds)];
    std::uint64_t answer = 0;
    Call call(kind.object, kind.method);
    call.number(kind.attribute, handle(kind.object));
    if (kind.answer != 0) call.add(1, kind.answer, reinterpret_cast<std::uint64_t>(&answer));
    served(call.on(program_.context()));
  }

  /// ibv_create_flow with one specification of any bits.
  void flow() {
    static constexpr std::uint32_t kSpecs[] = {0x20, 0x30, 0x31, 0x40, 0x41, 0x1000, 0x1001, 0x50};
    static constexpr std::uint16_t kSizes[] = {40, 40, 88, 16, 16, 16, 8, 16};
    const auto kind = script_.byte() % 8u;
    struct {
      std::uint32_t comp_mask = 0, qp_handle;
      std::uint32_t type = 0;
      std::uint16_t size, priority;
      std::uint8_t count = 1, reserved[2] = {}, port = 1;
      std::uint32_t flags = 0;
      std::uint32_t spec;
      std::uint16_t spec_size, spec_reserved = 0;
      std::array<std::byte, 80> rest{};
    } in{.qp_handle = handle(UVERBS_OBJECT_QP),
         .size = kSizes[kind],
         .priority = script_.byte(),
         .spec = kSpecs[kind],
         .spec_size = kSizes[kind]};
    const auto bytes = script_.take(script_.byte() % 81);
    std::ranges::copy(bytes, in.rest.begin());
    write(IB_USER_VERBS_EX_CMD_CREATE_FLOW | kExtended, in);
  }

  /// Writes bytes into its memory, and scans the doorbell records.
  void work() {
    const auto bytes = script_.take(script_.byte());
    auto* const to = place();
    const auto room = program_.memory() + Program::kMemory - reinterpret_cast<std::uint64_t>(to);
    std::memcpy(to, bytes.data(), std::min<std::size_t>(bytes.size(), room));
    run();
  }

  /// A command of any number, with small numbers in it. Registration has a step of its own, which
  /// uses the program's addresses.
  void any_write() {
    const auto command = script_.byte();
    if (command % 64 == IB_USER_VERBS_CMD_REG_MR || command % 64 == IB_USER_VERBS_CMD_REREG_MR)
      return;
    if (command % 64 == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) return;
    std::array<std::uint16_t, 96> in{};
    for (auto& word : in) {
      const auto kind = script_.byte();
      word = kind < 32 ? kind : kind < 36 ? script_.word() : std::uint16_t{0};
    }
    write(command % 64 | ((command & 0x80) != 0 ? kExtended : 0u), in);
  }

  void any_call() {
    const auto object = script_.word();
    // Methods that return descriptors have their own step, which closes them.
    if ((object & 0x8000) != 0 ? object % 16 >= 5 && object % 16 <= 6
                               : object % 20 == UVERBS_OBJECT_ASYNC_EVENT) {
      return;
    }
    Call call((object & 0x8000) != 0 ? static_cast<std::uint16_t>(0x1000 | object % 16)
                                     : static_cast<std::uint16_t>(object % 20),
              static_cast<std::uint16_t>(script_.byte() % 8 | (script_.byte() & 1) << 12));
    for (unsigned i = script_.byte() % 12; i != 0; --i) {
      const auto id = script_.byte();
      const auto kind = script_.byte();
      call.add(static_cast<std::uint16_t>(id % 32 | (id & 0x80) << 5), script_.byte(),
               (kind & 1) != 0 ? address() : kind);
    }
    served(call.on(program_.context()));
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  util::set_log_level(util::LogLevel::kError);
  return fuzz::run_input([&] {
    Caller(Script(data, size)).play();
    // Program's own expectations: all objects were returned to the device.
    check(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed());
  });
}
