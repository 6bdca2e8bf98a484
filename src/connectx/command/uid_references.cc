#include "connectx/command/uid_references.h"

#include <algorithm>

#include "spec/connectx/command_role.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/qp_commands.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;
using Op = command_opcode;

/// Cost of one list entry (util::WorkBudget).
constexpr std::int64_t kReferenceWork = 5;

/// Checks the fields that the layouts declare as references.
bool named(const Command& command, const Referred& may_use) {
  for (const auto& reference : references_of(static_cast<Op>(command.opcode))) {
    const auto number = reference.number.read(command.in);
    if (!reference.counts(command.in) || (reference.or_zero && number == 0)) continue;
    if (!may_use(reference.kind, number)) return false;
  }
  return true;
}

/// Checks what the service and the receive queue of a new QP make a reference. Some fields are
/// dummies that must be ignored:
/// - The SRQ of a QP that has no SRQ, and the receive CQ of an XRC initiator.
/// - The SRQ of a DCI, which receives nothing: it is an SRQ QP if the process names no SRQ.
/// A QP that receives nothing may also name no receive CQ.
bool of_receives(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_qp_in>().get(create_qp_in::qpc);
  const auto service = static_cast<service_type>(context.get(qpc::st));
  const auto rq_type = static_cast<qp_rq_type>(context.get(qpc::rq_type));
  const bool xrc = service == service_type::XRC;
  const bool has_srq = !xrc && service != service_type::DCI && rq_type == qp_rq_type::SRQ;
  const auto receive_cqn = context.get(qpc::cqn_rcv);
  const bool has_receive_cq = rq_type != qp_rq_type::ZERO_LENGTH_RQ || receive_cqn != 0;
  // A request to an XRC target names an SRQ of the target's domain. The PD of the SRQ then replaces
  // that of the target.
  const bool xrc_target = xrc && context.get(qpc::no_sq) != 0;
  return (xrc || !has_receive_cq || may_use(Owned::CQ, receive_cqn)) &&
         (!has_srq || may_use(Owned::SRQ, context.get(qpc::srqn_rmpn_xrqn))) &&
         (!xrc_target || may_use(Owned::XRCD, context.get(qpc::xrcd)));
}

/// True if the input has a QP context that changes a QP.
bool is_transition(Op opcode) {
  return std::ranges::any_of(kQpCommands, [&](const auto& row) { return row.opcode == opcode; });
}

/// Checks the SRQ of a QP, which a bit of a mask makes a reference.
bool of_changed_srq(const Command& command, const Referred& may_use) {
  using In = rst2init_qp_in;
  const auto in = command.input<In>();
  // no format: the bits are numbered in the document.
  constexpr auto kSrqn = 1u << static_cast<unsigned>(qp_opt_param_bit::SRQN);
  return (in.get(In::opt_param_mask) & kSrqn) == 0 ||
         may_use(Owned::SRQ, in.get(In::qpc).get(qpc::srqn_rmpn_xrqn));
}

/// Checks where a new TIR sends frames, which its type decides.
bool of_tir_destination(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_tir_in>().get(create_tir_in::tir_context);
  if (tir_disp_type(context.get(tir_context::disp_type)) == tir_disp_type::DIRECT) {
    return may_use(Owned::RQ, context.get(tir_context::inline_rqn));
  }
  return may_use(Owned::RQT, context.get(tir_context::indirect_table));
}

/// Checks the doorbell page of an SQ. RQs and RMPs have the field too, and no doorbell.
bool of_sq_page(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_sq_in>().get(create_sq_in::sq_context);
  return may_use(Owned::UAR, context.get(sq_context::wq).get(wq::uar_page));
}

/// Checks the RQs of an RQT context, which is at `offset` of the input and followed by its list.
bool of_rqt(const Command& command, std::size_t offset, const Referred& may_use) {
  const util::View<rqt_context> context(command.in.subspan(offset));
  auto list = command.in_tail(offset + rqt_context::rq_num_offset);
  const auto count = std::min<std::size_t>(context.get(rqt_context::rqt_actual_size),
                                           list.size() / rqt_context::rq_num_size);
  command.work.charge(static_cast<std::int64_t>(count) * kReferenceWork);
  for (std::size_t i = 0; i != count; ++i, list = list.subspan(rqt_context::rq_num_size)) {
    const auto number = util::View<rqt_entry>(list).get(rqt_entry::rq_num);
    if (!may_use(Owned::RQ, number)) return false;
  }
  return true;
}

/// Checks the destinations of a flow, and the counters after them.
bool of_flow(const Command& command, const Referred& may_use) {
  using In = set_flow_table_entry_in;
  const auto context = command.input<In>().get(In::flow_context);
  auto list = command.in_tail(In::flow_context.kOffset + flow_context::destination_offset);
  const auto next = [&] { list = list.subspan(flow_context::destination_size); };
  const auto entries = [&](std::uint32_t count) {
    const auto there = std::min<std::size_t>(count, list.size() / flow_context::destination_size);
    command.work.charge(static_cast<std::int64_t>(there) * kReferenceWork);
    return there;
  };
  for (auto n = entries(context.get(flow_context::destination_list_size)); n != 0; --n, next()) {
    const util::View<dest_format> entry(list);
    const bool table =
        destination_type(entry.get(dest_format::destination_type)) == destination_type::FLOW_TABLE;
    const auto id = entry.get(dest_format::destination_id);
    if (!may_use(table ? Owned::FLOW_TABLE : Owned::TIR, id)) return false;
  }
  for (auto n = entries(context.get(flow_context::flow_counter_list_size)); n != 0; --n, next()) {
    const util::View<flow_counter_list_entry> entry(list);
    const auto id = entry.get(flow_counter_list_entry::flow_counter_id);
    if (!may_use(Owned::FLOW_COUNTER, id)) return false;
  }
  return true;
}

/// True if the context gives a QP the reserved LKey, or datagrams with another source QPN.
bool takes_kernels_role(util::View<qpc> context) {
  return context.get(qpc::rlky) != 0 || context.get(qpc::deth_sqpn) != 0;
}

}  // namespace

bool is_kernels(const Command& command) {
  switch (static_cast<Op>(command.opcode)) {
    case Op::CREATE_EQ:
      return true;
    case Op::CREATE_MKEY: {
      const auto key = command.input<create_mkey_in>().get(create_mkey_in::mkey_context);
      constexpr auto kBusAddresses = static_cast<std::uint32_t>(mkey_access_mode::PA);
      return key.get(mkey_context::access_mode) == kBusAddresses &&
             key.get(mkey_context::access_mode_4_2) == 0;
    }
    case Op::CREATE_QP: {
      const auto context = command.input<create_qp_in>().get(create_qp_in::qpc);
      const auto service = static_cast<service_type>(context.get(qpc::st));
      return takes_kernels_role(context) || service == service_type::QP0 ||
             service == service_type::QP1 || service == service_type::REG_UMR;
    }
    case Op::RST2INIT_QP:
    case Op::INIT2INIT_QP:
      return takes_kernels_role(command.input<rst2init_qp_in>().get(rst2init_qp_in::qpc));
    case Op::CREATE_SQ:
      return command.input<create_sq_in>().get(create_sq_in::sq_context).get(sq_context::rlkey) !=
             0;
    case Op::CREATE_RQ:
      return command.input<create_rq_in>().get(create_rq_in::rq_context).get(rq_context::rlkey) !=
             0;
    case Op::CREATE_XRC_SRQ:
      return command.input<create_xrc_srq_in>()
                 .get(create_xrc_srq_in::xrc_srq_context_entry)
                 .get(xrc_srq_context::rlky) != 0;
    case Op::CREATE_DCT:
      return command.input<create_dct_in>().get(create_dct_in::dct_context_entry).get(dctc::rlky) !=
             0;
    case Op::QUERY_VPORT_COUNTER:
      return command.input<query_vport_counter_in>().get(query_vport_counter_in::clear) != 0;
    default:
      return false;
  }
}

bool clears(const Command& command) {
  switch (static_cast<Op>(command.opcode)) {
    case Op::QUERY_Q_COUNTER:
      return command.input<query_q_counter_in>().get(query_q_counter_in::clear) != 0;
    case Op::QUERY_FLOW_COUNTER:
      return command.input<query_flow_counter_in>().get(query_flow_counter_in::clear) != 0;
    default:
      return false;
  }
}

bool each_reference(const Command& command, const Referred& may_use) {
  const auto opcode = static_cast<Op>(command.opcode);
  // Only op_mod RESIZE has a new buffer.
  constexpr auto kResize = static_cast<std::uint32_t>(modify_cq_op_mod::RESIZE);
  if (opcode == Op::MODIFY_CQ && command.op_mod != kResize) return true;
  if (!named(command, may_use)) return false;
  switch (opcode) {
    case Op::CREATE_QP:
      return of_receives(command, may_use);
    case Op::CREATE_TIR:
      return of_tir_destination(command, may_use);
    case Op::CREATE_SQ:
      return of_sq_page(command, may_use);
    case Op::CREATE_RQT:
      return of_rqt(command, create_rqt_in::rqt_context.kOffset, may_use);
    case Op::MODIFY_RQT:
      return of_rqt(command, modify_rqt_in::rqt_context.kOffset, may_use);
    case Op::SET_FLOW_TABLE_ENTRY:
      return of_flow(command, may_use);
    default:
      return !is_transition(opcode) || of_changed_srq(command, may_use);
  }
}

}  // namespace softhca::connectx
