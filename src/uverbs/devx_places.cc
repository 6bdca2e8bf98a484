// The UMEMs in which queues and keys of DevX lie.
#include "spec/connectx/cq.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/srq.h"
#include "uverbs/devx_commands.h"
#include "uverbs/read_struct.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using Op = spec::command_opcode;
using Bytes = std::span<const std::byte>;

namespace {

bool is_list_of_keys(util::View<spec::mkey_context> key) {
  using Mode = spec::mkey_access_mode;
  const auto mode = static_cast<Mode>(key.get(spec::mkey_context::access_mode));
  return key.get(spec::mkey_context::access_mode_4_2) == 0 &&
         (mode == Mode::KLM || mode == Mode::KSM);
}

template <class In>
bool fits(Bytes in) {
  return in.size() >= In::kSize;
}

void mark(util::MutableView<spec::wq> queue) {
  queue.set(spec::wq::dbr_umem_valid, 1);
  queue.set(spec::wq::wq_umem_valid, 1);
}

void mark_work_queue(std::span<std::byte> in) {
  switch (opcode_of(in)) {
    case Op::CREATE_SQ: {
      using In = spec::create_sq_in;
      if (fits<In>(in))
        mark(util::MutableView<In>(in).sub(In::sq_context).sub(spec::sq_context::wq));
      return;
    }
    case Op::CREATE_RQ: {
      using In = spec::create_rq_in;
      if (fits<In>(in))
        mark(util::MutableView<In>(in).sub(In::rq_context).sub(spec::rq_context::wq));
      return;
    }
    case Op::CREATE_RMP: {
      using In = spec::create_rmp_in;
      if (fits<In>(in)) {
        mark(util::MutableView<In>(in).sub(In::rmp_context).sub(spec::rmp_context::wq));
      }
      return;
    }
    default:
      return;
  }
}

DevxPlace place_of(util::View<spec::wq> queue) {
  using Wq = spec::wq;
  return {.memory = queue.get(Wq::wq_umem_id),
          .record_memory = queue.get(Wq::dbr_umem_id),
          .record_offset = queue.get(Wq::dbr_addr),
          .uar = queue.get(Wq::uar_page)};
}

}  // namespace

void mark_umems(std::span<std::byte> in) {
  switch (opcode_of(in)) {
    case Op::CREATE_MKEY: {
      using In = spec::create_mkey_in;
      if (!fits<In>(in)) return;
      const util::MutableView<In> command(in);
      if (is_list_of_keys(command.sub(In::mkey_context))) return;
      command.set(In::mkey_umem_valid, 1);
      return;
    }
    case Op::CREATE_CQ: {
      using In = spec::create_cq_in;
      if (!fits<In>(in)) return;
      const util::MutableView<In> command(in);
      command.set(In::cq_umem_valid, 1);
      command.sub(In::cq_context_entry).set(spec::cq_context::dbr_umem_valid, 1);
      return;
    }
    case Op::MODIFY_CQ:
      if (fits<spec::modify_cq_in>(in)) {
        util::MutableView<spec::modify_cq_in>(in).set(spec::modify_cq_in::cq_umem_valid, 1);
      }
      return;
    case Op::CREATE_QP: {
      using In = spec::create_qp_in;
      if (!fits<In>(in)) return;
      const util::MutableView<In> command(in);
      command.set(In::wq_umem_valid, 1);
      command.sub(In::qpc).set(spec::qpc::dbr_umem_valid, 1);
      return;
    }
    case Op::CREATE_XRC_SRQ: {
      using In = spec::create_xrc_srq_in;
      if (!fits<In>(in)) return;
      const util::MutableView<In> command(in);
      command.set(In::xrc_srq_umem_valid, 1);
      command.sub(In::xrc_srq_context_entry).set(spec::xrc_srq_context::dbr_umem_valid, 1);
      return;
    }
    default:
      mark_work_queue(in);
  }
}

DevxPlace place_of(Bytes in) {
  switch (opcode_of(in)) {
    case Op::CREATE_MKEY: {
      using In = spec::create_mkey_in;
      const Read<In> command(in);
      if (command.get(In::mkey_umem_valid) == 0) return {};
      return {.memory = command.get(In::mkey_umem_id)};
    }
    case Op::CREATE_CQ: {
      using In = spec::create_cq_in;
      const Read<In> command(in);
      const auto cq = command.get(In::cq_context_entry);
      return {.memory = command.get(In::cq_umem_id),
              .record_memory = cq.get(spec::cq_context::dbr_umem_id),
              .record_offset = cq.get(spec::cq_context::dbr_addr),
              .uar = cq.get(spec::cq_context::uar_page)};
    }
    case Op::CREATE_QP: {
      using In = spec::create_qp_in;
      const Read<In> command(in);
      const auto qp = command.get(In::qpc);
      return {.memory = command.get(In::wq_umem_id),
              .record_memory = qp.get(spec::qpc::dbr_umem_id),
              .record_offset = qp.get(spec::qpc::dbr_addr),
              .uar = qp.get(spec::qpc::uar_page)};
    }
    case Op::CREATE_XRC_SRQ: {
      using In = spec::create_xrc_srq_in;
      const Read<In> command(in);
      const auto srq = command.get(In::xrc_srq_context_entry);
      return {.memory = command.get(In::xrc_srq_umem_id),
              .record_memory = srq.get(spec::xrc_srq_context::dbr_umem_id)};
    }
    case Op::CREATE_SQ: {
      using In = spec::create_sq_in;
      return place_of(Read<In>(in).get(In::sq_context).get(spec::sq_context::wq));
    }
    case Op::CREATE_RQ: {
      using In = spec::create_rq_in;
      return place_of(Read<In>(in).get(In::rq_context).get(spec::rq_context::wq));
    }
    case Op::CREATE_RMP: {
      using In = spec::create_rmp_in;
      return place_of(Read<In>(in).get(In::rmp_context).get(spec::rmp_context::wq));
    }
    default:
      return {};
  }
}

}  // namespace softhca::uverbs
