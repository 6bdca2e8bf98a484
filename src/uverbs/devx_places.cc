// The UMEMs in which queues and keys of DevX lie.
#include "spec/connectx/command_role.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "uverbs/devx_commands.h"
#include "uverbs/read_struct.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using Op = spec::command_opcode;
using Bytes = std::span<const std::byte>;

namespace {

bool is_list_of_keys(Bytes in) {
  using In = spec::create_mkey_in;
  using Mode = spec::mkey_access_mode;
  if (opcode_of(in) != Op::CREATE_MKEY) return false;
  const Read<In> command(in);
  const auto key = command.get(In::mkey_context);
  const auto mode = static_cast<Mode>(key.get(spec::mkey_context::access_mode));
  return key.get(spec::mkey_context::access_mode_4_2) == 0 &&
         (mode == Mode::KLM || mode == Mode::KSM);
}

template <class Context>
void add_doorbell(DevxPlace& place, util::View<Context> queue) {
  place.record_offset = queue.get(Context::dbr_addr);
  place.uar = queue.get(Context::uar_page);
}

/// Only these have a doorbell that is polled.
void add_doorbell(DevxPlace& place, Bytes in) {
  using Cq = spec::create_cq_in;
  using Qp = spec::create_qp_in;
  using Sq = spec::create_sq_in;
  switch (opcode_of(in)) {
    case Op::CREATE_CQ:
      return add_doorbell(place, Read<Cq>(in).get(Cq::cq_context_entry));
    case Op::CREATE_QP:
      return add_doorbell(place, Read<Qp>(in).get(Qp::qpc));
    case Op::CREATE_SQ:
      return add_doorbell(place, Read<Sq>(in).get(Sq::sq_context).get(spec::sq_context::wq));
    default:
      return;
  }
}

}  // namespace

void mark_umems(std::span<std::byte> in) {
  const auto* role = spec::find_role(opcode_of(in));
  if (role == nullptr || in.size() < role->input || is_list_of_keys(in)) return;
  for (const auto& reference : spec::references_of(role->opcode)) {
    if (number_space(reference.kind) == spec::object_kind::UMEM) reference.condition.write(in, 1);
  }
}

DevxPlace place_of(Bytes in) {
  DevxPlace place;
  for (const auto& reference : spec::references_of(opcode_of(in))) {
    if (!reference.counts(in)) continue;
    if (reference.kind == spec::object_kind::UMEM) place.memory = reference.number.read(in);
    if (reference.kind == spec::object_kind::RECORD_UMEM)
      place.record_memory = reference.number.read(in);
  }
  add_doorbell(place, in);
  return place;
}

}  // namespace softhca::uverbs
