// QUERY_DEV_LIM, QUERY_ADAPTER, INIT_HCA, CLOSE_HCA, MAD_IFC, NOP (JingZhao 3.2.1, 3.2.7).
#include <algorithm>

#include "jingzhao/device.h"
#include "util/bits.h"

namespace softhca::jingzhao {

using spec::jingzhao::init_hca_in;
using spec::jingzhao::mad_ifc_out;
using spec::jingzhao::query_adapter_out;
using spec::jingzhao::query_dev_lim_out;

CommandResult query_dev_lim(Device& device, const Command& command) {
  using Out = query_dev_lim_out;
  const auto out = command.output<Out>();
  out.set(Out::reserved_qp, limits::kLogReservedQps);
  out.set(Out::max_qp_sz, limits::kLogQpSize);
  out.set(Out::max_cq_sz, limits::kLogCqSize);
  out.set(Out::max_qps, device.rules().log_qps);
  out.set(Out::max_cqs, device.rules().log_cqs);
  out.set(Out::max_eqs, limits::kLogEqs);
  out.set(Out::max_mpts, device.rules().log_mpts);
  out.set(Out::max_pds, limits::kLogPds);
  out.set(Out::max_pkeys, limits::kLogPkeys);
  out.set(Out::max_mtt_seg, limits::kMttSize);
  out.set(Out::qpc_entry_sz, limits::kQpcSize);
  out.set(Out::cqc_entry_sz, limits::kCqcSize);
  out.set(Out::eqc_entry_sz, limits::kEqcSize);
  out.set(Out::mpt_entry_sz, limits::kMptSize);
  out.set(Out::max_mtu, limits::kMaxMtu);
  out.set(Out::max_vl, limits::kMaxVl);
  out.set(Out::num_ports, 1);
  out.set(Out::min_page_sz, limits::kLogMinPage);
  out.set(Out::max_sg, limits::kMaxSges);
  out.set(Out::max_desc_sz, limits::kMaxWqe);
  out.set(Out::max_sg_rq, limits::kMaxSges);
  out.set(Out::max_desc_sz_rq, limits::kMaxWqe);
  out.set(Out::max_icm_sz, limits::kMaxIcm);
  return {};
}

CommandResult query_adapter(Device& device, const Command& command) {
  command.output<query_adapter_out>().set(query_adapter_out::board_id, device.options().board_id);
  return {};
}

CommandResult init_hca(Device& device, const Command& command) {
  using In = init_hca_in;
  if (device.initialized()) {
    return refuse(Status::BAD_PARAM, "3.2.1.3", "the HCA is initialised; CLOSE_HCA comes first");
  }
  const auto in = command.input<In>();
  const auto base = [&](auto field) { return util::in_place(field, in.get(field)); };
  const Tables tables{.qpc_base = base(In::qpc_base),
                      .cqc_base = base(In::cqc_base),
                      .eqc_base = base(In::eqc_base),
                      .mpt_base = base(In::mpt_base),
                      .mtt_base = in.get(In::mtt_base),
                      .log_qps = in.get(In::log_num_qps),
                      .log_cqs = in.get(In::log_num_cqs),
                      .log_eqs = in.get(In::log_num_eqs),
                      .log_mpts = in.get(In::log_mpt_sz)};
  const auto& most = device.rules();
  if (tables.log_qps > most.log_qps || tables.log_cqs > most.log_cqs ||
      tables.log_eqs > limits::kLogEqs || tables.log_mpts > most.log_mpts) {
    return refuse(Status::BAD_PARAM, "3.2.1.3", "a table is larger than QUERY_DEV_LIM allows");
  }
  for (const auto start :
       {tables.qpc_base, tables.cqc_base, tables.eqc_base, tables.mpt_base, tables.mtt_base}) {
    if (start > UINT64_MAX - limits::kMaxIcm) {
      return refuse(Status::BAD_PARAM, "3.2.1.3", "a table wraps around");
    }
  }
  if (tables.mtt_base % limits::kMttSize != 0) {
    return refuse(Status::BAD_PARAM, "3.2.1.3", "mtt_base is no place of an MTT entry");
  }
  device.init(tables);
  return {};
}

CommandResult close_hca(Device& device, const Command&) {
  device.close();
  return {};
}

namespace {

/// The values of the RTL, which are constant for a RoCE port.
void show_port(Device& device, util::MutableView<mad_ifc_out> out) {
  using enum spec::infiniband::port_state;
  constexpr std::uint32_t kLidOfRoce = 1, kPolling = 2, kLinkUp = 3;
  const auto* port = device.infiniband();
  const bool up = port == nullptr ? device.link_up() : port->agent().state(1) != DOWN;
  out.set(mad_ifc_out::lid, port == nullptr ? kLidOfRoce : port->attributes().lid.value());
  const auto state = port != nullptr ? port->agent().state(1) : up ? INIT : DOWN;
  out.set(mad_ifc_out::port_state, static_cast<std::uint32_t>(state));
  out.set(mad_ifc_out::physical_state, up ? kLinkUp : kPolling);
  out.set(mad_ifc_out::link_layer, port != nullptr);
}

}  // namespace

/// The document lists the command without a layout (docs/jingzhao.md, gap 8).
CommandResult mad_ifc(Device& device, const Command& command) {
  constexpr std::uint8_t kIgnoreMkey = 1;
  if (command.in_param == 0) {
    if (command.op_modifier != 1) {
      return refuse(Status::BAD_PARAM, "3.2.6.4", "the status of the port has op_modifier 1");
    }
    show_port(device, command.output<mad_ifc_out>());
    return {};
  }
  auto* const port = device.infiniband();
  if (port == nullptr) {
    return refuse(Status::BAD_PARAM, "3.2.6.4", "a RoCE port answers no MADs");
  }
  subnet::Mad mad;
  std::ranges::copy(command.in, mad.begin());
  const auto mad_class =
      subnet::MadClass(util::View<subnet::Smp>(mad).get(subnet::Smp::mgmt_class));
  if (mad_class != subnet::MadClass::SUBN_LID_ROUTED &&
      mad_class != subnet::MadClass::SUBN_DIRECTED_ROUTE) {
    return refuse(Status::BAD_PARAM, "3.2.6.4", "a MAD of another class than subnet management");
  }
  if (!port->answer(mad, (command.op_modifier & kIgnoreMkey) != 0)) {
    return refuse(Status::BAD_PARAM, "3.2.6.4", "the MAD is no request, or has another M_Key");
  }
  std::ranges::copy(mad, command.out.begin());
  return {};
}

CommandResult nop(Device&, const Command&) { return {}; }

}  // namespace softhca::jingzhao
