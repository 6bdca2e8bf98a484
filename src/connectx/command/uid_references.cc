#include "connectx/command/uid_references.h"

#include <algorithm>

#include "spec/connectx/cq.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
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

/// Checks a reference that may be absent (0).
bool optional(const Referred& may_use, Owned kind, std::uint32_t number) {
  return number == 0 || may_use(kind, number);
}

/// The set in which a queue counts. Its owner would read the errors of a foreign queue as its own.
bool q_counter(const Referred& may_use, std::uint32_t set) {
  return optional(may_use, Owned::kQCounter, set);
}

bool umem(const Referred& may_use, bool valid, std::uint32_t id) {
  return !valid || may_use(Owned::kUmem, id);
}

bool of_mkey(const Command& command, const Referred& may_use) {
  using In = create_mkey_in;
  const auto in = command.input<In>();
  const auto context = in.get(In::mkey_context);
  // The UMR that takes a free key into use sets its PD, which is that of the UMR's QP.
  const bool free = context.get(mkey_context::free) != 0;
  return (free || may_use(Owned::kPd, context.get(mkey_context::pd))) &&
         umem(may_use, in.get(In::mkey_umem_valid) != 0, in.get(In::mkey_umem_id));
}

bool of_psv(const Command& command, const Referred& may_use) {
  return may_use(Owned::kPd, command.input<create_psv_in>().get(create_psv_in::pd));
}

bool of_cq(const Command& command, const Referred& may_use) {
  using In = create_cq_in;
  const auto in = command.input<In>();
  const auto context = in.get(In::cq_context_entry);
  return may_use(Owned::kEq, context.get(cq_context::c_eqn)) &&
         may_use(Owned::kUar, context.get(cq_context::uar_page)) &&
         umem(may_use, in.get(In::cq_umem_valid) != 0, in.get(In::cq_umem_id)) &&
         umem(may_use, context.get(cq_context::dbr_umem_valid) != 0,
              context.get(cq_context::dbr_umem_id));
}

/// Checks the new buffer in MODIFY_CQ, which only op_mod RESIZE has.
bool of_resized_cq(const Command& command, const Referred& may_use) {
  using In = modify_cq_in;
  const auto in = command.input<In>();
  const bool resizes = command.op_mod == static_cast<std::uint32_t>(modify_cq_op_mod::RESIZE);
  return umem(may_use, resizes && in.get(In::cq_umem_valid) != 0, in.get(In::cq_umem_id));
}

/// Checks the references of a QP context. Some of them are dummies that must be ignored:
/// - The SRQ of a QP that has no SRQ, and the receive CQ of an XRC initiator.
/// - The SRQ of a DCI, which receives nothing: it is an SRQ QP if the process names no SRQ.
/// A QP that receives nothing may also name no receive CQ.
bool of_qp(const Command& command, const Referred& may_use) {
  using In = create_qp_in;
  const auto in = command.input<In>();
  const auto context = in.get(In::qpc);
  const auto service = static_cast<service_type>(context.get(qpc::st));
  const auto rq_type = static_cast<qp_rq_type>(context.get(qpc::rq_type));
  const bool xrc = service == service_type::XRC;
  const bool has_srq = !xrc && service != service_type::DCI && rq_type == qp_rq_type::SRQ;
  const bool receives = rq_type != qp_rq_type::ZERO_LENGTH_RQ;
  const auto receive_cqn = context.get(qpc::cqn_rcv);
  const bool may_use_receive_cq =
      receives ? may_use(Owned::kCq, receive_cqn) : optional(may_use, Owned::kCq, receive_cqn);
  const bool sends = context.get(qpc::no_sq) == 0;
  // A request to an XRC target names an SRQ of the target's domain. The PD of the SRQ then replaces
  // that of the target.
  const bool xrc_target = xrc && !sends;
  return may_use(Owned::kPd, context.get(qpc::pd)) &&
         (!sends || (may_use(Owned::kCq, context.get(qpc::cqn_snd)) &&
                     may_use(Owned::kUar, context.get(qpc::uar_page)))) &&
         (xrc || may_use_receive_cq) &&
         (!has_srq || may_use(Owned::kSrq, context.get(qpc::srqn_rmpn_xrqn))) &&
         (!xrc_target || may_use(Owned::kXrcd, context.get(qpc::xrcd))) &&
         q_counter(may_use, context.get(qpc::counter_set_id)) &&
         umem(may_use, in.get(In::wq_umem_valid) != 0, in.get(In::wq_umem_id)) &&
         umem(may_use, context.get(qpc::dbr_umem_valid) != 0, context.get(qpc::dbr_umem_id));
}

/// Checks fields that the device uses or not, depending on the QP. They are always checked, because
/// no process needs to name objects of another one.
bool of_qp_change(const Command& command, const Referred& may_use) {
  using In = rst2init_qp_in;
  const auto in = command.input<In>();
  const auto context = in.get(In::qpc);
  // no format: the bits are numbered in the document.
  constexpr auto kSrqn = 1u << static_cast<unsigned>(qp_opt_param_bit::SRQN);
  const bool changes_srq = (in.get(In::opt_param_mask) & kSrqn) != 0;
  return optional(may_use, Owned::kPd, context.get(qpc::pd)) &&
         optional(may_use, Owned::kCq, context.get(qpc::cqn_snd)) &&
         optional(may_use, Owned::kCq, context.get(qpc::cqn_rcv)) &&
         q_counter(may_use, context.get(qpc::counter_set_id)) &&
         (!changes_srq || may_use(Owned::kSrq, context.get(qpc::srqn_rmpn_xrqn)));
}

bool of_wq(util::View<wq> queue, const Referred& may_use) {
  return optional(may_use, Owned::kPd, queue.get(wq::pd)) &&
         umem(may_use, queue.get(wq::wq_umem_valid) != 0, queue.get(wq::wq_umem_id)) &&
         umem(may_use, queue.get(wq::dbr_umem_valid) != 0, queue.get(wq::dbr_umem_id));
}

/// Checks an XRC SRQ. Requests to any target of its domain may name it, so the domain must be the
/// process's own, as for a target.
bool of_xrc_srq(const Command& command, const Referred& may_use) {
  using In = create_xrc_srq_in;
  const auto in = command.input<In>();
  const auto context = in.get(In::xrc_srq_context_entry);
  return may_use(Owned::kPd, context.get(xrc_srq_context::pd)) &&
         may_use(Owned::kCq, context.get(xrc_srq_context::cqn)) &&
         may_use(Owned::kXrcd, context.get(xrc_srq_context::xrcd)) &&
         umem(may_use, in.get(In::xrc_srq_umem_valid) != 0, in.get(In::xrc_srq_umem_id)) &&
         umem(may_use, context.get(xrc_srq_context::dbr_umem_valid) != 0,
              context.get(xrc_srq_context::dbr_umem_id));
}

bool of_dct(const Command& command, const Referred& may_use) {
  using In = create_dct_in;
  const auto context = command.input<In>().get(In::dct_context_entry);
  return may_use(Owned::kPd, context.get(dctc::pd)) &&
         may_use(Owned::kCq, context.get(dctc::cqn)) &&
         q_counter(may_use, context.get(dctc::counter_set_id)) &&
         may_use(Owned::kSrq, context.get(dctc::srqn_xrqn));
}

bool of_tir_destination(util::View<tir_context> context, const Referred& may_use) {
  if (tir_disp_type(context.get(tir_context::disp_type)) == tir_disp_type::DIRECT) {
    return may_use(Owned::kQueue, context.get(tir_context::inline_rqn));
  }
  return may_use(Owned::kRqt, context.get(tir_context::indirect_table));
}

bool of_tir(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_tir_in>().get(create_tir_in::tir_context);
  return optional(may_use, Owned::kTransportDomain, context.get(tir_context::transport_domain)) &&
         of_tir_destination(context, may_use);
}

bool of_tir_change(const Command& command, const Referred& may_use) {
  using In = modify_tir_in;
  const auto context = command.input<In>().get(In::tir_context);
  return optional(may_use, Owned::kRqt, context.get(tir_context::indirect_table)) &&
         optional(may_use, Owned::kQueue, context.get(tir_context::inline_rqn));
}

bool of_tis(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_tis_in>().get(create_tis_in::tis_context);
  return may_use(Owned::kTransportDomain, context.get(tis_context::transport_domain));
}

bool of_sq(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_sq_in>().get(create_sq_in::sq_context);
  return may_use(Owned::kCq, context.get(sq_context::cqn)) &&
         (context.get(sq_context::tis_lst_sz) == 0 ||
          may_use(Owned::kTis, context.get(sq_context::tis_num))) &&
         may_use(Owned::kUar, context.get(sq_context::wq).get(wq::uar_page)) &&
         of_wq(context.get(sq_context::wq), may_use);
}

bool of_rq(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_rq_in>().get(create_rq_in::rq_context);
  return may_use(Owned::kCq, context.get(rq_context::cqn)) &&
         q_counter(may_use, context.get(rq_context::counter_set_id)) &&
         of_wq(context.get(rq_context::wq), may_use);
}

bool of_rq_change(const Command& command, const Referred& may_use) {
  const auto context = command.input<modify_rq_in>().get(modify_rq_in::rq_context);
  return q_counter(may_use, context.get(rq_context::counter_set_id));
}

bool of_rmp(const Command& command, const Referred& may_use) {
  const auto context = command.input<create_rmp_in>().get(create_rmp_in::rmp_context);
  return of_wq(context.get(rmp_context::wq), may_use);
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
    if (!may_use(Owned::kQueue, number)) return false;
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
    if (!may_use(table ? Owned::kFlowTable : Owned::kTir, id)) return false;
  }
  for (auto n = entries(context.get(flow_context::flow_counter_list_size)); n != 0; --n, next()) {
    const util::View<flow_counter_list_entry> entry(list);
    const auto id = entry.get(flow_counter_list_entry::flow_counter_id);
    if (!may_use(Owned::kFlowCounter, id)) return false;
  }
  return true;
}

bool of_flow_table(util::View<flow_table_context> context, const Referred& may_use) {
  return optional(may_use, Owned::kFlowTable, context.get(flow_table_context::table_miss_id));
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
  switch (static_cast<Op>(command.opcode)) {
    case Op::CREATE_MKEY:
      return of_mkey(command, may_use);
    case Op::CREATE_PSV:
      return of_psv(command, may_use);
    case Op::CREATE_CQ:
      return of_cq(command, may_use);
    case Op::MODIFY_CQ:
      return of_resized_cq(command, may_use);
    case Op::CREATE_QP:
      return of_qp(command, may_use);
    case Op::RST2INIT_QP:
    case Op::INIT2INIT_QP:
    case Op::INIT2RTR_QP:
    case Op::RTR2RTS_QP:
    case Op::RTS2RTS_QP:
    case Op::SQERR2RTS_QP:
    case Op::SQD_RTS_QP:
    case Op::RTS2SQD_QP:
    case Op::SQD2RTS_QP:
    case Op::SQD2SQD_QP:
      return of_qp_change(command, may_use);
    case Op::CREATE_XRC_SRQ:
      return of_xrc_srq(command, may_use);
    case Op::CREATE_DCT:
      return of_dct(command, may_use);
    case Op::CREATE_TIR:
      return of_tir(command, may_use);
    case Op::MODIFY_TIR:
      return of_tir_change(command, may_use);
    case Op::CREATE_TIS:
      return of_tis(command, may_use);
    case Op::CREATE_SQ:
      return of_sq(command, may_use);
    case Op::CREATE_RQ:
      return of_rq(command, may_use);
    case Op::MODIFY_RQ:
      return of_rq_change(command, may_use);
    case Op::CREATE_RMP:
      return of_rmp(command, may_use);
    case Op::CREATE_RQT:
      return of_rqt(command, create_rqt_in::rqt_context.kOffset, may_use);
    case Op::MODIFY_RQT:
      return of_rqt(command, modify_rqt_in::rqt_context.kOffset, may_use);
    case Op::SET_FLOW_TABLE_ENTRY:
      return of_flow(command, may_use);
    case Op::CREATE_FLOW_TABLE:
      return of_flow_table(
          command.input<create_flow_table_in>().get(create_flow_table_in::flow_table_context),
          may_use);
    case Op::MODIFY_FLOW_TABLE:
      return of_flow_table(
          command.input<modify_flow_table_in>().get(modify_flow_table_in::flow_table_context),
          may_use);
    default:
      return true;
  }
}

}  // namespace softhca::connectx
