// The commands of LimitsHost that create and change objects.

#include "connectx/command/user_context_host.h"
#include "connectx/function/limits_host_run.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

namespace s = spec::connectx;
using Code = LimitsHost::Code;
using Opcode = LimitsHost::Opcode;
using ListType = s::allowed_list_type;

// Queues ------------------------------------------------------------------------------------------

Code LimitsHost::create_qp(unsigned log_sq, unsigned log_rq, unsigned log_rq_stride,
                           s::service_type service) {
  using In = s::create_qp_in;
  const auto reply = run<In, s::create_qp_out>(
      Opcode::CREATE_QP,
      [&](auto in) {
        const auto context = in.sub(In::qpc);
        context.set(s::qpc::st, static_cast<std::uint32_t>(service));
        context.set(s::qpc::pd, pd_);
        context.set(s::qpc::cqn_snd, cqn_);
        context.set(s::qpc::cqn_rcv, cqn_);
        context.set(s::qpc::log_sq_size, log_sq);
        context.set(s::qpc::log_rq_size, log_rq);
        context.set(s::qpc::log_rq_stride, log_rq_stride);
        context.set(s::qpc::uar_page, host_.uar);
        context.set(s::qpc::dbr_addr, memory_);
      },
      kLimitsHostPages);
  if (reply.ok()) {
    qpn_ = number_in<s::create_qp_out>(reply, s::create_qp_out::qpn);
    service_ = service;
  }
  return reply.status();
}

Code LimitsHost::modify_qp(Opcode opcode, std::string_view capability, std::uint32_t value) {
  using In = s::rst2init_qp_in;
  const auto reply = run<In, s::rst2init_qp_out>(opcode, [&](auto in) {
    in.set(In::qpn, qpn_);
    if (opcode == Opcode::SQD2SQD_QP) {
      in.set(In::opt_param_mask, 1u << static_cast<unsigned>(s::qp_opt_param_bit::SRA_MAX) |
                                     1u << static_cast<unsigned>(s::qp_opt_param_bit::RRA_MAX));
    }
    const auto context = in.sub(In::qpc);
    context.set(s::qpc::st, static_cast<std::uint32_t>(service_));
    context.set(s::qpc::pd, pd_);
    context.set(s::qpc::cqn_snd, cqn_);
    context.set(s::qpc::cqn_rcv, cqn_);
    context.set(s::qpc::mtu, static_cast<std::uint32_t>(s::qp_mtu::BYTES_1K));
    context.sub(s::qpc::primary_address_path).set(s::ads::vhca_port_num, 1);
    if (capability == "log_max_msg") context.set(s::qpc::log_msg_max, value);
    if (capability == "log_max_ra_res_qp") context.set(s::qpc::log_rra_max, value);
    if (capability == "log_max_ra_req_qp" || capability == "log_max_ra_req_dc") {
      context.set(s::qpc::log_sra_max, value);
    }
  });
  return reply.status();
}

Code LimitsHost::create_rmp(unsigned log_size, unsigned log_stride) {
  using In = s::create_rmp_in;
  return run<In, s::create_rmp_out>(
             Opcode::CREATE_RMP,
             [&](auto in) {
               const auto wq = in.sub(In::rmp_context).sub(s::rmp_context::wq);
               in.sub(In::rmp_context)
                   .set(s::rmp_context::state, static_cast<std::uint32_t>(s::rmp_state::RDY));
               wq.set(s::wq::wq_type, static_cast<std::uint32_t>(s::wq_type::LINKED_LIST));
               wq.set(s::wq::pd, pd_);
               wq.set(s::wq::dbr_addr, memory_);
               wq.set(s::wq::log_wq_sz, log_size);
               wq.set(s::wq::log_wq_stride, log_stride);
             },
             kLimitsHostPages)
      .status();
}

Code LimitsHost::create_srq(unsigned log_size, unsigned log_stride) {
  using In = s::create_srq_in;
  using Context = s::srq_context;
  return run<In, s::create_srq_out>(
             Opcode::CREATE_SRQ,
             [&](auto in) {
               const auto context = in.sub(In::srq_context_entry);
               context.set(Context::pd, pd_);
               context.set(Context::dbr_addr, memory_);
               context.set(Context::log_srq_size, log_size);
               context.set(Context::log_rq_stride, log_stride - 4);
             },
             kLimitsHostPages)
      .status();
}

Code LimitsHost::create_xrc_srq(unsigned log_size, unsigned log_stride) {
  using In = s::create_xrc_srq_in;
  using Context = s::xrc_srq_context;
  return run<In, s::create_xrc_srq_out>(
             Opcode::CREATE_XRC_SRQ,
             [&](auto in) {
               const auto context = in.sub(In::xrc_srq_context_entry);
               context.set(Context::pd, pd_);
               context.set(Context::xrcd, xrcd_);
               context.set(Context::cqn, cqn_);
               context.set(Context::dbr_addr, memory_);
               context.set(Context::log_xrc_srq_size, log_size);
               context.set(Context::log_rq_stride, log_stride - 4);
             },
             kLimitsHostPages)
      .status();
}

Code LimitsHost::create_cq(unsigned log_size) {
  using In = s::create_cq_in;
  return run<In, s::create_cq_out>(
             Opcode::CREATE_CQ,
             [&](auto in) {
               const auto context = in.sub(In::cq_context_entry);
               context.set(s::cq_context::log_cq_size, log_size);
               context.set(s::cq_context::uar_page, host_.uar);
               context.set(s::cq_context::c_eqn, eqn_);
               context.set(s::cq_context::dbr_addr, memory_);
             },
             kLimitsHostPages)
      .status();
}

Code LimitsHost::create_eq(unsigned log_size) {
  using In = s::create_eq_in;
  return run<In, s::create_eq_out>(
             Opcode::CREATE_EQ,
             [&](auto in) {
               const auto context = in.sub(In::eq_context_entry);
               context.set(s::eq_context::log_eq_size, log_size);
               context.set(s::eq_context::uar_page, host_.uar);
             },
             kLimitsHostPages)
      .status();
}

Code LimitsHost::create_sq(unsigned log_size, unsigned log_stride, unsigned tises) {
  using In = s::create_sq_in;
  return run<In, s::create_sq_out>(
             Opcode::CREATE_SQ,
             [&](auto in) {
               const auto context = in.sub(In::sq_context);
               context.set(s::sq_context::cqn, cqn_);
               context.set(s::sq_context::tis_lst_sz, tises);
               context.set(s::sq_context::tis_num, tisn_);
               const auto wq = context.sub(s::sq_context::wq);
               wq.set(s::wq::wq_type, static_cast<std::uint32_t>(s::wq_type::CYCLIC));
               wq.set(s::wq::pd, pd_);
               wq.set(s::wq::uar_page, host_.uar);
               wq.set(s::wq::dbr_addr, memory_);
               wq.set(s::wq::log_wq_sz, log_size);
               wq.set(s::wq::log_wq_stride, log_stride);
             },
             kLimitsHostPages)
      .status();
}

Code LimitsHost::create_rq(unsigned log_size, unsigned log_stride) {
  using In = s::create_rq_in;
  const auto reply = run<In, s::create_rq_out>(
      Opcode::CREATE_RQ,
      [&](auto in) {
        const auto context = in.sub(In::rq_context);
        context.set(s::rq_context::cqn, cqn_);
        const auto wq = context.sub(s::rq_context::wq);
        wq.set(s::wq::wq_type, static_cast<std::uint32_t>(s::wq_type::CYCLIC));
        wq.set(s::wq::pd, pd_);
        wq.set(s::wq::dbr_addr, memory_);
        wq.set(s::wq::log_wq_sz, log_size);
        wq.set(s::wq::log_wq_stride, log_stride);
      },
      kLimitsHostPages);
  if (reply.ok()) rqn_ = number_in<s::create_rq_out>(reply, s::create_rq_out::rqn);
  return reply.status();
}

// Keys --------------------------------------------------------------------------------------------

Code LimitsHost::create_mkey(unsigned log_page_size) {
  using In = s::create_mkey_in;
  return run<In, s::create_mkey_out>(
             Opcode::CREATE_MKEY,
             [&](auto in) {
               in.set(In::translations_octword_actual_size, 1);
               const auto context = in.sub(In::mkey_context);
               context.set(s::mkey_context::access_mode,
                           static_cast<std::uint32_t>(s::mkey_access_mode::MTT));
               context.set(s::mkey_context::pd, pd_);
               context.set(s::mkey_context::qpn, 0xFFFFFF);
               context.set(s::mkey_context::len, 4096);
               context.set(s::mkey_context::translations_octword_size, 1);
               context.set(s::mkey_context::log_page_size, log_page_size);
             },
             2)
      .status();
}

Code LimitsHost::create_key_list(std::uint32_t entries) {
  using In = s::create_mkey_in;
  return run<In, s::create_mkey_out>(
             Opcode::CREATE_MKEY,
             [&](auto in) {
               in.set(In::translations_octword_actual_size, entries);
               const auto context = in.sub(In::mkey_context);
               context.set(s::mkey_context::access_mode,
                           static_cast<std::uint32_t>(s::mkey_access_mode::KLM));
               context.set(s::mkey_context::pd, pd_);
               context.set(s::mkey_context::qpn, 0xFFFFFF);
               context.set(s::mkey_context::translations_octword_size, entries);
             },
             std::size_t{2} * entries)
      .status();
}

// Ethernet ----------------------------------------------------------------------------------------

Code LimitsHost::create_tir() {
  using In = s::create_tir_in;
  const auto reply = run<In, s::create_tir_out>(Opcode::CREATE_TIR, [&](auto in) {
    in.sub(In::tir_context).set(s::tir_context::inline_rqn, rqn_);
    in.sub(In::tir_context).set(s::tir_context::transport_domain, domain_);
  });
  if (reply.ok()) tirn_ = number_in<s::create_tir_out>(reply, s::create_tir_out::tirn);
  return reply.status();
}

Code LimitsHost::create_tis() {
  using In = s::create_tis_in;
  const auto reply = run<In, s::create_tis_out>(Opcode::CREATE_TIS, [&](auto in) {
    in.sub(In::tis_context).set(s::tis_context::transport_domain, domain_);
  });
  if (reply.ok()) tisn_ = number_in<s::create_tis_out>(reply, s::create_tis_out::tisn);
  return reply.status();
}

Code LimitsHost::create_rqt(std::uint32_t size) {
  using In = s::create_rqt_in;
  Input<In> in(Opcode::CREATE_RQT, 0, std::size_t{4});
  (*in).sub(In::rqt_context).set(s::rqt_context::rqt_max_size, size);
  (*in).sub(In::rqt_context).set(s::rqt_context::rqt_actual_size, 1);
  constexpr auto kList = In::rqt_context.kOffset + s::rqt_context::rq_num_offset;
  util::store_be32(in.bytes().data() + kList, rqn_);
  return host_.execute<s::create_rqt_out>(in).status();
}

Code LimitsHost::set_list(ListType type, std::uint32_t size) {
  using In = s::modify_nic_vport_context_in;
  return run<In, s::modify_nic_vport_context_out>(
             Opcode::MODIFY_NIC_VPORT_CONTEXT,
             [&](auto in) {
               in.sub(In::field_select).set(s::modify_nic_vport_field_select::addresses_list, 1);
               const auto context = in.sub(In::nic_vport_context);
               context.set(s::nic_vport_context::allowed_list_type,
                           static_cast<std::uint32_t>(type));
               context.set(s::nic_vport_context::allowed_list_size, size);
             },
             size)
      .status();
}

Code LimitsHost::create_flow_table(unsigned log_size) {
  using In = s::create_flow_table_in;
  const auto reply = run<In, s::create_flow_table_out>(Opcode::CREATE_FLOW_TABLE, [&](auto in) {
    in.sub(In::flow_table_context).set(s::flow_table_context::level, 5);
    in.sub(In::flow_table_context).set(s::flow_table_context::log_size, log_size);
  });
  if (reply.ok() && table_ == 0) {
    table_ = number_in<s::create_flow_table_out>(reply, s::create_flow_table_out::table_id);
  }
  return reply.status();
}

Code LimitsHost::count_flow(std::uint32_t counters) {
  using In = s::set_flow_table_entry_in;
  using AllocOut = s::alloc_flow_counter_out;
  const auto counter =
      run<s::alloc_flow_counter_in, AllocOut>(Opcode::ALLOC_FLOW_COUNTER, [](auto) {});
  const auto id = number_in<AllocOut>(counter, AllocOut::flow_counter_id);
  Input<In> in(Opcode::SET_FLOW_TABLE_ENTRY, 0, std::size_t{8} * counters);
  in->set(In::table_id, table_);
  const auto context = (*in).sub(In::flow_context);
  context.set(s::flow_context::group_id, group_);
  context.set(s::flow_context::action, static_cast<std::uint32_t>(s::flow_action::DROP) |
                                           static_cast<std::uint32_t>(s::flow_action::COUNT));
  context.set(s::flow_context::flow_counter_list_size, counters);
  for (std::uint32_t i = 0; i < counters; ++i) {
    const util::MutableView<s::flow_counter_list_entry> entry(in.tail().subspan(8 * i, 8));
    entry.set(s::flow_counter_list_entry::flow_counter_id, id);
  }
  return host_.execute<s::set_flow_table_entry_out>(in).status();
}

Code LimitsHost::query_flow_counters(std::uint32_t count) {
  using In = s::query_flow_counter_in;
  using Out = s::query_flow_counter_out;
  return host_
      .call<Out, In>(
          Opcode::QUERY_FLOW_COUNTER, [&](auto in) { in.set(In::num_of_counters, count); }, {}, 0,
          std::size_t{count} * Out::flow_statistics_size)
      .status();
}

Code LimitsHost::set_flow(std::uint32_t index, std::uint32_t destinations) {
  using In = s::set_flow_table_entry_in;
  Input<In> in(Opcode::SET_FLOW_TABLE_ENTRY, 0, std::size_t{8} * destinations);
  in->set(In::table_id, table_);
  in->set(In::flow_index, index);
  const auto context = (*in).sub(In::flow_context);
  context.set(s::flow_context::group_id, group_);
  context.set(s::flow_context::action,
              static_cast<std::uint32_t>(destinations == 0 ? s::flow_action::DROP
                                                           : s::flow_action::FWD_DEST));
  context.set(s::flow_context::destination_list_size, destinations);
  for (std::uint32_t i = 0; i < destinations; ++i) {
    const util::MutableView<s::dest_format> entry(in.tail().subspan(8 * i, 8));
    entry.set(s::dest_format::destination_type,
              static_cast<std::uint8_t>(s::destination_type::TIR));
    entry.set(s::dest_format::destination_id, tirn_);
  }
  return host_.execute<s::set_flow_table_entry_out>(in).status();
}

// Others ------------------------------------------------------------------------------------------

Code LimitsHost::attach(std::uint32_t group) {
  using In = s::attach_to_mcg_in;
  return run<In, s::attach_to_mcg_out>(Opcode::ATTACH_TO_MCG,
                                       [&](auto in) {
                                         in.set(In::qpn, qpn_);
                                         const auto gid = in.sub(In::multicast_gid);
                                         gid[0] = std::byte{0xFF};
                                         util::store_be32(gid.data() + 12, group);
                                       })
      .status();
}

Code LimitsHost::create_umem() {
  using In = s::create_umem_in;
  if (uid_ == 0) uid_ = create_uctx(host_);
  As as(host_, uid_);
  return run<In, s::create_umem_out>(
             Opcode::CREATE_UMEM, [](auto in) { in.sub(In::umem).set(s::umem::num_of_mtt, 1); }, 1)
      .status();
}

Code LimitsHost::alloc(Opcode opcode) {
  return run<s::alloc_pd_in, s::alloc_pd_out>(opcode, [](auto) {}).status();
}

Code LimitsHost::roce_address(std::string_view command, std::uint32_t index) {
  if (command == "QUERY_ROCE_ADDRESS") {
    using In = s::query_roce_address_in;
    return run<In, s::query_roce_address_out>(
               Opcode::QUERY_ROCE_ADDRESS, [&](auto in) { in.set(In::roce_address_index, index); })
        .status();
  }
  using In = s::set_roce_address_in;
  return run<In, s::set_roce_address_out>(Opcode::SET_ROCE_ADDRESS,
                                          [&](auto in) { in.set(In::roce_address_index, index); })
      .status();
}

}  // namespace softhca::connectx
