// Calls of DevX: memory, objects made by commands of the device, commands of any opcode, and event
// channels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "util/endian.h"
#include "uverbs_methods.h"

namespace softhca::fuzz {

class UverbsDevx : public UverbsMethods {
 public:
  using UverbsMethods::UverbsMethods;

 protected:
  using Op = spec::connectx::command_opcode;
  template <class In>
  using Command = driver::connectx::Request<In>;

  void devx_memory() {
    const auto begin = address();
    // Memory behind the program's may be mapped, and belongs to the fuzzer.
    const auto room = program_.memory() + Program::kMemory - begin;
    const auto made = program_.reg_umem(begin, std::min<std::uint64_t>(script_.word() * 64u, room));
    served(made.wrong);
    if (made.wrong == 0) note_made(MLX5_IB_OBJECT_DEVX_UMEM, made.handle);
  }

  /// Numbers of UMEMs and of objects: small, from 1 on.
  std::uint32_t number() { return 1u + script_.byte() % 16; }

  /// A command that makes a queue or a key. The device would accept it with the right numbers, but
  /// some of its words are changed.
  void devx_make() {
    using namespace spec::connectx;
    switch (script_.byte() % 5) {
      case 0: {
        const auto umem = number();
        return give(program_.cq_command(umem, script_.byte() * 64u, page_));
      }
      case 1: {
        Command<create_qp_in> in(Op::CREATE_QP);
        in.set(create_qp_in::wq_umem_id, number());
        const auto qp = in.sub(create_qp_in::qpc);
        qp.set(qpc::pd, number());
        qp.set(qpc::cqn_snd, number());
        qp.set(qpc::cqn_rcv, number());
        qp.set(qpc::log_sq_size, 4);
        qp.set(qpc::log_rq_size, 4);
        qp.set(qpc::uar_page, page_);
        qp.set(qpc::dbr_umem_id, number());
        qp.set(qpc::dbr_addr, script_.byte() * 8u);
        qp.set(qpc::pm_state, 3);
        return give(std::move(in));
      }
      case 2: {
        Command<create_mkey_in> in(Op::CREATE_MKEY);
        in.set(create_mkey_in::mkey_umem_id, number());
        in.set(create_mkey_in::translations_octword_actual_size, script_.byte());
        const auto key = in.sub(create_mkey_in::mkey_context);
        key.set(mkey_context::access_mode, script_.byte() % 4);
        key.set(mkey_context::pd, number());
        key.set(mkey_context::qpn, 0xffffff);
        key.set(mkey_context::len, script_.word());
        key.set(mkey_context::translations_octword_size, script_.byte());
        key.set(mkey_context::log_page_size, 12);
        return give(std::move(in));
      }
      case 3: {
        Command<create_sq_in> in(Op::CREATE_SQ);
        const auto sq = in.sub(create_sq_in::sq_context);
        sq.set(sq_context::cqn, number());
        sq.set(sq_context::tis_lst_sz, 1);
        sq.set(sq_context::tis_num, number());
        const auto queue = sq.sub(sq_context::wq);
        queue.set(wq::wq_type, 1);
        queue.set(wq::pd, number());
        queue.set(wq::uar_page, page_);
        queue.set(wq::log_wq_stride, 6);
        queue.set(wq::log_wq_sz, 4);
        queue.set(wq::wq_umem_id, number());
        queue.set(wq::dbr_umem_id, number());
        queue.set(wq::dbr_addr, script_.byte() * 8u);
        return give(std::move(in));
      }
      case 4:
        return give(Command<alloc_transport_domain_in>(Op::ALLOC_TRANSPORT_DOMAIN));
    }
  }
  template <class In>
  void give(Command<In>&& in) {
    for (unsigned n = script_.byte() % 4; n != 0; --n) {
      const auto at = script_.word() * 4u % (In::kSize - 4);
      util::store_be32(in.all().data() + at, script_.dword());
    }
    const auto made = program_.create(in);
    served(made.wrong);
    if (made.wrong == 0) note_made(MLX5_IB_OBJECT_DEVX_OBJ, made.handle);
  }

  /// A command of any opcode and length, by one of the calls.
  void devx_command() {
    static constexpr Op kOpcodes[] = {
        Op::RST2INIT_QP,  Op::INIT2RTR_QP,     Op::RTR2RTS_QP, Op::QP_2RST,
        Op::QP_2ERR,      Op::MODIFY_SQ,       Op::MODIFY_CQ,  Op::QUERY_CQ,
        Op::QUERY_QP,     Op::QUERY_MKEY,      Op::ALLOC_PD,   Op::CREATE_TIS,
        Op::CREATE_TIR,   Op::CREATE_RQ,       Op::CREATE_RMP, Op::CREATE_DCT,
        Op::CREATE_RQT,   Op::QUERY_HCA_CAP,   Op::NOP,        Op::CREATE_FLOW_TABLE,
        Op::CREATE_SRQ,   Op::ATTACH_TO_MCG,   Op::ALLOC_XRCD, Op::CREATE_FLOW_GROUP,
        Op::ALLOC_UAR,    Op::ALLOC_Q_COUNTER, Op::QUERY_SQ,   Op::SET_FLOW_TABLE_ENTRY,
        Op::DESTROY_UCTX, Op::TEARDOWN_HCA,    Op::CREATE_EQ,  Op::CREATE_XRC_SRQ};
    struct Way {
      std::uint16_t object, method, handle, command;
    };
    static constexpr Way kWays[] = {
        {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, 0, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN},
        {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE,
         MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN},
        {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY,
         MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN},
        {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE,
         MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN}};
    const auto& way = kWays[script_.byte() % std::size(kWays)];
    std::vector<std::byte> in(16 + script_.byte() * 4u), out(16 + script_.byte() * 4u);
    const auto opcode = kOpcodes[script_.byte() % std::size(kOpcodes)];
    util::store_be32(in.data(), std::uint32_t{static_cast<std::uint16_t>(opcode)} * 65536);
    util::store_be32(in.data() + 8, number());
    for (unsigned n = script_.byte() % 16; n != 0; --n) {
      const auto at = script_.word() * 4u % (in.size() - 4);
      util::store_be32(in.data() + at, script_.byte());
    }
    Call call(way.object, way.method);
    if (way.handle != 0) call.number(way.handle, handle(MLX5_IB_OBJECT_DEVX_OBJ));
    call.add(way.command, static_cast<std::uint16_t>(in.size()),
             reinterpret_cast<std::uint64_t>(in.data()))
        .add(static_cast<std::uint16_t>(way.command + 1), static_cast<std::uint16_t>(out.size()),
             reinterpret_cast<std::uint64_t>(out.data()));
    const auto wrong = call.on(program_.context());
    served(wrong);
    if (wrong == 0 && way.method == MLX5_IB_METHOD_DEVX_OBJ_CREATE &&
        way.object == MLX5_IB_OBJECT_DEVX_OBJ) {
      note_made(MLX5_IB_OBJECT_DEVX_OBJ, call.made(0));
    }
  }

  /// An event channel and its subscriptions.
  void devx_subscribe() {
    const auto how = script_.byte();
    if (channels_.size() < 2) {
      Call alloc(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC);
      alloc.number(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 0)
          .in(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, std::uint32_t{how % 2u});
      if (alloc.on(program_.context()) == 0) channels_.push_back(static_cast<int>(alloc.made(0)));
    }
    if (channels_.empty()) return;
    Call call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT);
    call.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, descriptor())
        .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, std::uint16_t{script_.byte()})
        .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, std::uint64_t{how});
    if ((how & 2) != 0) {
      call.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, handle(MLX5_IB_OBJECT_DEVX_OBJ));
    }
    served(call.on(program_.context()));
  }
};

}  // namespace softhca::fuzz
