#include "connectx/limits_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "connectx/user_context_host.h"
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

namespace {

/// Pages of the largest queue. All of them map to one unused page of memory.
constexpr std::size_t kPages = 64;

template <class Out, class Field>
std::uint32_t number(const Reply& reply, Field field) {
  EXPECT_TRUE(reply.ok()) << to_string(reply.status());
  return reply.ok() ? reply.as<Out>().get(field) : 0;
}

}  // namespace

template <class In, class Out, class Fill>
Reply LimitsHost::run(Opcode opcode, Fill fill, std::size_t pages, std::uint16_t op_mod) {
  std::vector<std::byte> list(8 * pages);
  for (std::size_t i = 0; i < pages; ++i) util::store_be64(list.data() + 8 * i, memory_);
  return host_.call<Out, In>(opcode, fill, list, op_mod);
}

LimitsHost::LimitsHost(const HostOptions& options,
                       const std::function<void(FakeHost&)>& before_init)
    : host_(options), limits_(options.limits) {
  const auto& limits = limits_;
  host_.enable();
  before_init(host_);
  host_.finish_start();
  memory_ = host_.allocate(4096);
  pd_ = host_.allocate_pd();
  domain_ = host_.allocate_transport_domain();
  xrcd_ = host_.allocate_xrcd();
  eqn_ = host_.create_eq(1, 0, 0);
  cqn_ = host_.create_cq(1, eqn_).cqn;
  EXPECT_EQ(create_qp(0, 0, 0), Code::OK);
  EXPECT_EQ(create_tis(), Code::OK);
  EXPECT_EQ(create_rq(1, limits.log_min_stride_sz_rq), Code::OK);
  EXPECT_EQ(create_tir(), Code::OK);
  EXPECT_EQ(create_flow_table(std::min(5u, limits.log_max_ft_size)), Code::OK);
  using In = s::create_flow_group_in;
  const auto group = run<In, s::create_flow_group_out>(Opcode::CREATE_FLOW_GROUP, [&](auto in) {
    in.set(In::table_id, table_);
    in.set(In::end_flow_index, 31);
  });
  group_ = number<s::create_flow_group_out>(group, s::create_flow_group_out::group_id);
}

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
      kPages);
  if (reply.ok()) {
    qpn_ = number<s::create_qp_out>(reply, s::create_qp_out::qpn);
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
             kPages)
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
             kPages)
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
             kPages)
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
             kPages)
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
             kPages)
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
             kPages)
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
      kPages);
  if (reply.ok()) rqn_ = number<s::create_rq_out>(reply, s::create_rq_out::rqn);
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
  if (reply.ok()) tirn_ = number<s::create_tir_out>(reply, s::create_tir_out::tirn);
  return reply.status();
}

Code LimitsHost::create_tis() {
  using In = s::create_tis_in;
  const auto reply = run<In, s::create_tis_out>(Opcode::CREATE_TIS, [&](auto in) {
    in.sub(In::tis_context).set(s::tis_context::transport_domain, domain_);
  });
  if (reply.ok()) tisn_ = number<s::create_tis_out>(reply, s::create_tis_out::tisn);
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
    table_ = number<s::create_flow_table_out>(reply, s::create_flow_table_out::table_id);
  }
  return reply.status();
}

Code LimitsHost::count_flow(std::uint32_t counters) {
  using In = s::set_flow_table_entry_in;
  using AllocOut = s::alloc_flow_counter_out;
  const auto counter =
      run<s::alloc_flow_counter_in, AllocOut>(Opcode::ALLOC_FLOW_COUNTER, [](auto) {});
  const auto id = number<AllocOut>(counter, AllocOut::flow_counter_id);
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

Code LimitsHost::create(std::string_view capability, std::string_view command) {
  const auto stride = limits_.log_min_stride_sz_rq;
  const std::map<std::string_view, std::function<Code()>> makers{
      {"CREATE_QP", [&] { return create_qp(0, 0, 0); }},
      {"CREATE_SRQ", [&] { return create_srq(1, 6); }},
      {"CREATE_XRC_SRQ", [&] { return create_xrc_srq(1, 6); }},
      {"CREATE_RMP", [&] { return create_rmp(1, 6); }},
      {"CREATE_CQ", [&] { return create_cq(1); }},
      {"CREATE_EQ", [&] { return create_eq(1); }},
      {"CREATE_SQ", [&] { return create_sq(1, 6, 1); }},
      {"CREATE_RQ", [&] { return create_rq(1, stride); }},
      {"CREATE_TIR", [&] { return create_tir(); }},
      {"CREATE_TIS", [&] { return create_tis(); }},
      {"CREATE_RQT", [&] { return create_rqt(1); }},
      {"CREATE_MKEY", [&] { return create_mkey(limits_.log_pg_sz); }},
      {"CREATE_FLOW_TABLE", [&] { return create_flow_table(1); }},
      {"SET_FLOW_TABLE_ENTRY", [&] { return set_flow(flows_++, 0); }},
      {"ATTACH_TO_MCG",
       [&] {
         if (capability == "log_max_mcg") return attach(mcgs_++);
         EXPECT_EQ(create_qp(0, 0, 0, s::service_type::UD), Code::OK);
         return attach(0);
       }},
      {"ALLOC_PD", [&] { return alloc(Opcode::ALLOC_PD); }},
      {"ALLOC_XRCD", [&] { return alloc(Opcode::ALLOC_XRCD); }},
      {"ALLOC_TRANSPORT_DOMAIN", [&] { return alloc(Opcode::ALLOC_TRANSPORT_DOMAIN); }},
      {"CREATE_UCTX", [&] { return try_create_uctx(host_, 0).status(); }},
      {"CREATE_UMEM", [&] { return create_umem(); }},
      {"ALLOC_Q_COUNTER", [&] { return alloc(Opcode::ALLOC_Q_COUNTER); }},
      {"ALLOC_FLOW_COUNTER", [&] { return alloc(Opcode::ALLOC_FLOW_COUNTER); }},
  };
  const auto at = makers.find(command);
  EXPECT_NE(at, makers.end()) << "no way to make what " << command << " makes";
  return at == makers.end() ? Code::INTERNAL_ERR : at->second();
}

std::uint32_t LimitsHost::fill(std::string_view capability, std::string_view command,
                               std::uint32_t most) {
  // Number of objects that the host has already made.
  const std::map<std::string_view, std::uint32_t> made{
      {"log_max_qp", 1},    {"log_max_cq", 1},   {"log_max_eq", 1},
      {"log_max_rq", 1},    {"log_max_tir", 1},  {"log_max_tis", 1},
      {"log_max_pd", 1},    {"log_max_xrcd", 1}, {"log_max_transport_domain", 1},
      {"log_max_ft_num", 1}};
  const auto before = made.find(capability);
  std::uint32_t count = before == made.end() ? 0 : before->second;
  if (capability == "log_max_mcg") {
    EXPECT_EQ(create_qp(0, 0, 0, s::service_type::UD), Code::OK);
  }
  while (count < most && (end_ = create(capability, command)) == Code::OK) ++count;
  return count;
}

Code LimitsHost::send(std::string_view capability, std::string_view command, std::uint32_t value) {
  const auto stride = limits_.log_min_stride_sz_rq;
  const auto log_of = [](std::uint32_t bytes) {
    return static_cast<unsigned>(std::countr_zero(bytes));
  };
  const auto limit = [&](std::string_view name) { return capability == name; };
  if (command == "CREATE_QP" && limit("log_max_qp_sz")) {
    // Tries each of the two queues alone: refused if both are, accepted if both are.
    const auto send_queue = create_qp(value, 0, 0);
    const auto receive_queue = create_qp(0, value, 0);
    return (send_queue == Code::OK) == (receive_queue == Code::OK) ? send_queue
                                                                   : Code::INTERNAL_ERR;
  }
  if (command == "CREATE_QP") return create_qp(0, 0, log_of(value) - 4);
  if (command == "CREATE_RMP") {
    return limit("log_max_srq_sz") ? create_rmp(value, 6) : create_rmp(1, log_of(value));
  }
  if (command == "CREATE_SRQ") {
    return limit("log_max_srq_sz") ? create_srq(value, 6) : create_srq(1, log_of(value));
  }
  if (command == "CREATE_XRC_SRQ") {
    return limit("log_max_srq_sz") ? create_xrc_srq(value, 6) : create_xrc_srq(1, log_of(value));
  }
  if (command == "CREATE_CQ") return create_cq(value);
  if (command == "CREATE_EQ") return create_eq(value);
  if (command == "CREATE_SQ") {
    if (limit("log_max_wq_sz")) return create_sq(value, 6, 1);
    return limit("log_max_tis_per_sq") ? create_sq(1, 6, value) : create_sq(1, value, 1);
  }
  if (command == "CREATE_RQ") {
    return limit("log_max_wq_sz") ? create_rq(value, stride) : create_rq(1, value);
  }
  if (command == "CREATE_RQT") return create_rqt(value);
  if (command == "CREATE_MKEY") {
    return limit("log_pg_sz") ? create_mkey(value) : create_key_list(value);
  }
  if (command == "INIT2RTR_QP" || command == "RTR2RTS_QP" || command == "SQD2SQD_QP") {
    if (limit("log_max_ra_req_dc")) {
      EXPECT_EQ(create_qp(0, 0, 0, s::service_type::DCI), Code::OK);
    }
    EXPECT_EQ(modify_qp(Opcode::QP_2RST, "", 0), Code::OK);
    EXPECT_EQ(modify_qp(Opcode::RST2INIT_QP, "", 0), Code::OK);
    if (command == "INIT2RTR_QP") return modify_qp(Opcode::INIT2RTR_QP, capability, value);
    EXPECT_EQ(modify_qp(Opcode::INIT2RTR_QP, "", 0), Code::OK);
    if (command == "RTR2RTS_QP") return modify_qp(Opcode::RTR2RTS_QP, capability, value);
    EXPECT_EQ(modify_qp(Opcode::RTR2RTS_QP, "", 0), Code::OK);
    EXPECT_EQ(modify_qp(Opcode::RTS2SQD_QP, "", 0), Code::OK);
    return modify_qp(Opcode::SQD2SQD_QP, capability, value);
  }
  if (limit("log_max_vlan_list")) return set_list(ListType::VLAN_LIST, value);
  if (limit("log_max_current_mc_list")) return set_list(ListType::CURRENT_MC_MAC_ADDRESS, value);
  if (limit("log_max_current_uc_list")) return set_list(ListType::CURRENT_UC_MAC_ADDRESS, value);
  if (command == "CREATE_FLOW_TABLE") return create_flow_table(value);
  if (limit("log_max_flow_counter")) return count_flow(value);
  if (command == "SET_FLOW_TABLE_ENTRY") return set_flow(0, value);
  if (command == "QUERY_FLOW_COUNTER") return query_flow_counters(value);
  if (limit("roce_address_table_size")) return roce_address(command, value);
  ADD_FAILURE() << "no way to send " << command << " at " << capability;
  return Code::INTERNAL_ERR;
}

}  // namespace softhca::connectx
