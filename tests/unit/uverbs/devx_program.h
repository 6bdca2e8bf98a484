// A program that builds its own commands (DevX), as UCX does, with its memory, queues and keys.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "driver/connectx/message.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/mkey.h"
#include "uverbs/program.h"

namespace softhca::uverbs {

class DevxProgram : public Program {
 public:
  explicit DevxProgram(Reach reach = Reach::kAll) : Program(reach) {}

  /// A call with a command and room for its output. `id` is the command's attribute.
  struct Answer {
    Errno wrong = 0;
    std::uint32_t handle = 0;
    std::vector<std::byte> out = std::vector<std::byte>(0x110);
    unsigned status() const { return static_cast<unsigned>(out[0]); }
  };
  template <class In>
  Answer other(const driver::connectx::Request<In>& in) {
    return give(Call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER),
                MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in.all());
  }
  template <class In>
  Answer create(const driver::connectx::Request<In>& in) {
    Call call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    call.number(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0);
    return give(std::move(call), MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in.all());
  }
  template <class In>
  Answer modify(std::uint32_t handle, const driver::connectx::Request<In>& in) {
    Call call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY);
    call.number(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, handle);
    return give(std::move(call), MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, in.all());
  }
  template <class In>
  Answer query(std::uint32_t handle, const driver::connectx::Request<In>& in) {
    Call call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY);
    call.number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, handle);
    return give(std::move(call), MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, in.all());
  }
  Errno destroy(std::uint32_t handle) {
    return Call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY)
        .number(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, handle)
        .on(context());
  }

  struct Umem {
    Errno wrong = 0;
    std::uint32_t handle = 0, id = 0;
  };
  Umem reg_umem(std::uint64_t address, std::uint64_t size,
                std::optional<std::uint64_t> page_sizes = {}) {
    Umem umem;
    Call call(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
    call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, 0)
        .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, address)
        .in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, size)
        .in(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, std::uint32_t{1})
        .out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, umem.id);
    if (page_sizes) call.in(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, *page_sizes);
    umem.wrong = call.on(context());
    umem.handle = call.made(0);
    return umem;
  }
  Errno dereg_umem(std::uint32_t handle) {
    return Call(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG)
        .number(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, handle)
        .on(context());
  }
  std::uint32_t eqn() {
    std::uint32_t number = 0;
    (void)Call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN)
        .in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, std::uint32_t{0})
        .out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, number)
        .on(context());
    return number;
  }

  using CreateCq = driver::connectx::Request<softhca::spec::connectx::create_cq_in>;
  /// CREATE_CQ of 16 entries in the first page of `umem`. `record` is the offset of its doorbell
  /// record there.
  CreateCq cq_command(std::uint32_t umem, std::uint64_t record, std::uint32_t page) {
    namespace spec = softhca::spec::connectx;
    CreateCq in(spec::command_opcode::CREATE_CQ);
    in.set(spec::create_cq_in::cq_umem_id, umem);
    const auto context = in.sub(spec::create_cq_in::cq_context_entry);
    context.set(spec::cq_context::log_cq_size, 4);
    context.set(spec::cq_context::c_eqn, eqn());
    context.set(spec::cq_context::uar_page, page);
    context.set(spec::cq_context::dbr_umem_id, umem);
    context.set(spec::cq_context::dbr_addr, record);
    return in;
  }

 private:
  /// The output's attribute ID is the command's plus one.
  Answer give(Call call, std::uint16_t id, std::span<const std::byte> in) {
    Answer answer;
    call.add(id, static_cast<std::uint16_t>(in.size()), reinterpret_cast<std::uint64_t>(in.data()))
        .add(static_cast<std::uint16_t>(id + 1), static_cast<std::uint16_t>(answer.out.size()),
             reinterpret_cast<std::uint64_t>(answer.out.data()));
    answer.wrong = call.on(context());
    answer.handle = call.made(0);
    return answer;
  }
};

}  // namespace softhca::uverbs
