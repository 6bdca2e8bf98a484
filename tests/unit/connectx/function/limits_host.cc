#include "connectx/function/limits_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "connectx/command/user_context_host.h"
#include "connectx/function/limits_host_run.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

namespace s = spec::connectx;
using Code = LimitsHost::Code;
using Opcode = LimitsHost::Opcode;
using ListType = s::allowed_list_type;

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
  group_ = number_in<s::create_flow_group_out>(group, s::create_flow_group_out::group_id);
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
