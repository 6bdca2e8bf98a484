// A program that calls the door in every way: calls as libibverbs makes them, with sizes, handles,
// flags and states of its own choice, calls of any other form, and doorbells, with any bytes in its
// queues.
//
// Its pointers are of its own memory, or wrong; the device reaches no other memory. Whatever it
// does, a call says 0 or an errno, the device goes on, and when the file is closed everything that
// was made is back in the device.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "oracle.h"
#include "script.h"
#include "uverbs/program.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;
using uverbs::Call;
using uverbs::Errno;
using uverbs::Program;

constexpr std::uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;

class Caller {
 public:
  explicit Caller(Script script) : script_(script) {}

  void play() {
    page_ = program_.uar();
    while (!script_.empty()) {
      const fuzz::Turn turn;
      step();
    }
    run();
  }

 private:
  /// Of the program's memory, mostly.
  std::uint64_t address() {
    const auto at = script_.word();
    switch (at) {
      case 0xffff:
        return 0;
      case 0xfffe:
        return ~std::uint64_t{0} - 4095;
      case 0xfffd:
        return program_.memory() + Program::kMemory;
      default:
        return program_.memory() + at * 64 % Program::kMemory;
    }
  }
  std::byte* place() {
    return reinterpret_cast<std::byte*>(program_.memory() + script_.word() * 8 % Program::kMemory);
  }
  /// Handles are small numbers, from 1 on.
  std::uint32_t handle() { return script_.byte() % 32; }
  /// 1 to 32768, or anything.
  std::uint32_t power() {
    const auto log = script_.byte() % 20;
    return log < 16 ? 1u << log : script_.byte();
  }

  void served(Errno wrong) { check(wrong >= 0 && wrong < 4096); }
  template <class In>
  void write(std::uint32_t command, const In& in) {
    std::array<std::byte, 256> out{};
    served(uverbs::write_command(program_.context(), command, in, out));
  }
  void run() {
    program_.device().records().scan();
    program_.device().hca().host().progress();
    program_.device().poll_events();
    program_.context().flush_events();
  }

  void step() {
    switch (script_.byte() % 16) {
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
        in.pd_handle = handle();
        in.attr.is_global = script_.byte() & 1;
        in.attr.grh.sgid_index = script_.byte();
        return write(IB_USER_VERBS_CMD_CREATE_AH, in);
      }
      case 12: {
        struct {
          std::uint64_t response = 0;
          std::uint32_t pd, type;
        } in{.pd = handle(), .type = script_.byte()};
        return write(IB_USER_VERBS_CMD_ALLOC_MW, in);
      }
      case 13: {
        struct {
          std::uint64_t response = 0;
          std::uint32_t handle, mask;
        } in{.handle = handle(), .mask = script_.byte()};
        return write(IB_USER_VERBS_CMD_QUERY_QP, in);
      }
      case 14:
        return program_.context().lose_memory(address() & ~std::uint64_t{4095}, script_.byte() & 1);
      case 15:
        return run();
    }
  }

  void reg_mr() {
    ib_uverbs_reg_mr_resp out{};
    const auto begin = address();
    served(program_.reg_mr(handle(), begin, script_.word() * 4u, script_.byte(), out));
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
    served(Call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)
               .number(UVERBS_ATTR_CREATE_CQ_HANDLE, 0)
               .in(UVERBS_ATTR_CREATE_CQ_CQE, power())
               .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, std::uint64_t{7})
               .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, std::uint32_t{0})
               .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last)
               .in(UVERBS_ATTR_UHW_IN, own)
               .out(UVERBS_ATTR_UHW_OUT, numbers)
               .on(program_.context()));
  }

  void create_qp() {
    static constexpr std::uint32_t kTypes[] = {2, 3, 4, 8, 9, 10, 255, 7};
    mlx5_ib_create_qp own{};
    own.buf_addr = address();
    own.db_addr = address();
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
        .number(UVERBS_ATTR_CREATE_QP_PD_HANDLE, handle())
        .number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, handle())
        .number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, handle())
        .in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, std::uint64_t{9})
        .in(UVERBS_ATTR_CREATE_QP_CAP, caps)
        .in(UVERBS_ATTR_CREATE_QP_TYPE, kTypes[type % 8])
        .out(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
        .out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number)
        .in(UVERBS_ATTR_UHW_IN, own)
        .out(UVERBS_ATTR_UHW_OUT, answer);
    if ((type & 0x80) != 0) call.number(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, handle());
    if ((type & 0x40) != 0) call.number(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, handle());
    if (call.on(program_.context()) == 0) last_qpn_ = number;
  }

  void modify_qp() {
    // The masks of ibv_rc_pingpong (host-door contract 4.8), and others.
    static constexpr std::uint32_t kMasks[] = {0x39, 0x129181, 0x12e01, 0x71, 1, 0x10001};
    uverbs::QpAttributes in{};
    const auto how = script_.byte();
    in.qp_handle = handle();
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
        .number(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, handle())
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
      call.number(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, handle())
          .number(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, handle());
    }
    served(call.on(program_.context()));
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
    };
    const auto& kind = kKinds[script_.byte() % std::size(kKinds)];
    std::uint64_t answer = 0;
    Call call(kind.object, kind.method);
    call.number(kind.attribute, handle());
    if (kind.answer != 0) call.add(1, kind.answer, reinterpret_cast<std::uint64_t>(&answer));
    served(call.on(program_.context()));
  }

  /// Bytes in its memory, and a look at the records.
  void work() {
    const auto bytes = script_.take(script_.byte());
    auto* const to = place();
    const auto room = program_.memory() + Program::kMemory - reinterpret_cast<std::uint64_t>(to);
    std::memcpy(to, bytes.data(), std::min<std::size_t>(bytes.size(), room));
    run();
  }

  /// A command of any number, with small numbers in it. Registration has a step of its own, whose
  /// addresses are the program's.
  void any_write() {
    const auto command = script_.byte();
    if (command % 64 == IB_USER_VERBS_CMD_REG_MR || command % 64 == IB_USER_VERBS_CMD_REREG_MR)
      return;
    std::array<std::uint16_t, 96> in{};
    for (auto& word : in) {
      const auto kind = script_.byte();
      word = kind < 32 ? kind : kind < 36 ? script_.word() : std::uint16_t{0};
    }
    write(command % 64 | ((command & 0x80) != 0 ? kExtended : 0u), in);
  }

  void any_call() {
    const auto object = script_.word();
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

  Script script_;
  Program program_{Program::Reach::kMemory};
  std::uint32_t page_ = 0;
  std::uint32_t last_qpn_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] {
    Caller(Script(data, size)).play();
    // Program's own expectations: the device has got back everything.
    check(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed());
  });
}
