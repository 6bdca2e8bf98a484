#include "connectx/command_table.h"

#include <algorithm>
#include <array>

#include "connectx/commands/commands.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

namespace {

namespace s = spec::connectx;
using Op = s::command_opcode;

constexpr std::uint8_t bit(HcaState state) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(state));
}
constexpr std::uint8_t kBeforeEnable = bit(HcaState::kDisabled);
constexpr std::uint8_t kBeforeInit = bit(HcaState::kEnabled);
constexpr std::uint8_t kAfterInit = bit(HcaState::kInitialized);
constexpr std::uint8_t kAfterEnable = kBeforeInit | kAfterInit;
constexpr std::uint8_t kAlways = kBeforeEnable | kAfterEnable;

/// Not in the manual.
constexpr std::string_view kDriver = "mlx5 driver interface";
/// Outputs that the manual prints shorter than drivers make them.
constexpr std::uint32_t kHeaderAndOneDword = 0x0C;
constexpr std::uint32_t kHeaderAndTwoDwords = 0x10;

// opcode, section, least input, least output, handler, when
constexpr auto kTable = std::to_array<CommandSpec>({
    {Op::QUERY_HCA_CAP, "PRM 12.3.3", s::query_hca_cap_in::kSize, s::query_hca_cap_out::kSize,
     query_hca_cap, kAfterEnable},
    {Op::QUERY_ADAPTER, "PRM 12.3.5", s::query_adapter_in::kSize, s::query_adapter_out::kSize,
     query_adapter, kAfterEnable},
    {Op::INIT_HCA, "PRM 12.3.6", s::init_hca_in::kSize, s::init_hca_out::kSize,
     init_hca, kBeforeInit},
    {Op::TEARDOWN_HCA, "PRM 12.3.7", s::teardown_hca_in::kSize, s::teardown_hca_out::kSize,
     teardown_hca, kAfterEnable},
    {Op::ENABLE_HCA, "PRM 12.3.8", s::enable_hca_in::kSize, kHeaderAndOneDword,
     enable_hca, kBeforeEnable},
    {Op::DISABLE_HCA, "PRM 12.3.9", s::disable_hca_in::kSize, kHeaderAndOneDword,
     disable_hca, kAfterEnable},
    {Op::QUERY_PAGES, "PRM 12.3.1", s::query_pages_in::kSize, s::query_pages_out::kSize,
     query_pages, kAfterEnable},
    {Op::MANAGE_PAGES, "PRM 12.3.2", s::manage_pages_in::kSize, s::manage_pages_out::kSize,
     manage_pages, kAfterEnable},
    {Op::SET_HCA_CAP, "PRM 12.3.4", s::set_hca_cap_in::kSize, s::set_hca_cap_out::kSize,
     set_hca_cap, kBeforeInit},
    {Op::QUERY_ISSI, "PRM 12.3.10", s::query_issi_in::kSize, s::query_issi_out::kSize,
     query_issi, kAfterEnable},
    {Op::SET_ISSI, "PRM 12.3.11", s::set_issi_in::kSize, s::set_issi_out::kSize,
     set_issi, kAfterEnable},
    {Op::SET_DRIVER_VERSION, "PRM 12.3.12", s::set_driver_version_in::kSize, s::set_driver_version_out::kSize,
     set_driver_version, kAfterEnable},
    {Op::CREATE_MKEY, "PRM 12.5.1", s::create_mkey_in::kSize, s::create_mkey_out::kSize,
     create_mkey, kAfterInit},
    {Op::QUERY_MKEY, "PRM 12.5.2", s::query_mkey_in::kSize, s::query_mkey_out::kSize,
     query_mkey, kAfterInit},
    {Op::DESTROY_MKEY, "PRM 12.5.3", s::destroy_mkey_in::kSize, s::destroy_mkey_out::kSize,
     destroy_mkey, kAfterInit},
    {Op::QUERY_SPECIAL_CONTEXTS, "PRM 12.5.4", s::query_special_contexts_in::kSize, kHeaderAndTwoDwords,
     query_special_contexts, kAfterInit},
    {Op::CREATE_EQ, "PRM 12.6.1", s::create_eq_in::kSize, s::create_eq_out::kSize,
     create_eq, kAfterInit},
    {Op::DESTROY_EQ, "PRM 12.6.2", s::destroy_eq_in::kSize, s::destroy_eq_out::kSize,
     destroy_eq, kAfterInit},
    {Op::QUERY_EQ, "PRM 12.6.3", s::query_eq_in::kSize, s::query_eq_out::kSize,
     query_eq, kAfterInit},
    {Op::GEN_EQE, "PRM 12.6.4", s::gen_eqe_in::kSize, s::gen_eqe_out::kSize, gen_eqe, kAfterInit},
    {Op::CREATE_CQ, "PRM 12.7.1", s::create_cq_in::kSize, s::create_cq_out::kSize,
     create_cq, kAfterInit},
    {Op::DESTROY_CQ, "PRM 12.7.2", s::destroy_cq_in::kSize, s::destroy_cq_out::kSize,
     destroy_cq, kAfterInit},
    {Op::QUERY_CQ, "PRM 12.7.3", s::query_cq_in::kSize, s::query_cq_out::kSize,
     query_cq, kAfterInit},
    {Op::MODIFY_CQ, "PRM 12.7.4", s::modify_cq_in::kSize, s::modify_cq_out::kSize,
     modify_cq, kAfterInit},
    {Op::CREATE_QP, kDriver, s::create_qp_in::kSize, s::create_qp_out::kSize,
     create_qp, kAfterInit},
    {Op::DESTROY_QP, kDriver, s::destroy_qp_in::kSize, s::destroy_qp_out::kSize,
     destroy_qp, kAfterInit},
    {Op::RST2INIT_QP, kDriver, s::rst2init_qp_in::kSize, s::rst2init_qp_out::kSize,
     rst2init_qp, kAfterInit},
    {Op::INIT2RTR_QP, kDriver, s::init2rtr_qp_in::kSize, s::init2rtr_qp_out::kSize,
     init2rtr_qp, kAfterInit},
    {Op::RTR2RTS_QP, kDriver, s::rtr2rts_qp_in::kSize, s::rtr2rts_qp_out::kSize,
     rtr2rts_qp, kAfterInit},
    {Op::RTS2RTS_QP, kDriver, s::rts2rts_qp_in::kSize, s::rts2rts_qp_out::kSize,
     rts2rts_qp, kAfterInit},
    {Op::SQERR2RTS_QP, kDriver, s::sqerr2rts_qp_in::kSize, s::sqerr2rts_qp_out::kSize,
     sqerr2rts_qp, kAfterInit},
    {Op::QP_2ERR, kDriver, s::qp_2err_in::kSize, s::qp_2err_out::kSize, qp_2err, kAfterInit},
    {Op::QP_2RST, kDriver, s::qp_2rst_in::kSize, s::qp_2rst_out::kSize, qp_2rst, kAfterInit},
    {Op::QUERY_QP, kDriver, s::query_qp_in::kSize, s::query_qp_out::kSize, query_qp, kAfterInit},
    {Op::SQD_RTS_QP, kDriver, s::sqd_rts_qp_in::kSize, s::sqd_rts_qp_out::kSize,
     sqd_rts_qp, kAfterInit},
    {Op::INIT2INIT_QP, kDriver, s::init2init_qp_in::kSize, s::init2init_qp_out::kSize,
     init2init_qp, kAfterInit},
    {Op::CREATE_SRQ, kDriver, s::create_srq_in::kSize, s::create_srq_out::kSize,
     create_srq, kAfterInit},
    {Op::DESTROY_SRQ, kDriver, s::destroy_srq_in::kSize, s::destroy_srq_out::kSize,
     destroy_srq, kAfterInit},
    {Op::QUERY_SRQ, kDriver, s::query_srq_in::kSize, s::query_srq_out::kSize,
     query_srq, kAfterInit},
    {Op::ARM_RQ, kDriver, s::arm_rq_in::kSize, s::arm_rq_out::kSize, arm_rq, kAfterInit},
    {Op::CREATE_XRC_SRQ, kDriver, s::create_xrc_srq_in::kSize, s::create_xrc_srq_out::kSize,
     create_xrc_srq, kAfterInit},
    {Op::DESTROY_XRC_SRQ, kDriver, s::destroy_xrc_srq_in::kSize, s::destroy_xrc_srq_out::kSize,
     destroy_xrc_srq, kAfterInit},
    {Op::QUERY_XRC_SRQ, kDriver, s::query_xrc_srq_in::kSize, s::query_xrc_srq_out::kSize,
     query_xrc_srq, kAfterInit},
    {Op::ARM_XRC_SRQ, kDriver, s::arm_xrc_srq_in::kSize, s::arm_xrc_srq_out::kSize,
     arm_xrc_srq, kAfterInit},
    {Op::QUERY_VPORT_STATE, "PRM 12.16.1", s::query_vport_state_in::kSize, s::query_vport_state_out::kSize,
     query_vport_state, kAfterInit},
    {Op::MODIFY_VPORT_STATE, "PRM 12.16.2", s::modify_vport_state_in::kSize, s::modify_vport_state_out::kSize,
     modify_vport_state, kAfterInit},
    {Op::QUERY_NIC_VPORT_CONTEXT, "PRM 12.16.3", s::query_nic_vport_context_in::kSize, s::query_nic_vport_context_out::kSize,
     query_nic_vport_context, kAfterInit},
    {Op::MODIFY_NIC_VPORT_CONTEXT, "PRM 12.16.4", s::modify_nic_vport_context_in::kSize, s::modify_nic_vport_context_out::kSize,
     modify_nic_vport_context, kAfterInit},
    {Op::QUERY_ROCE_ADDRESS, kDriver, s::query_roce_address_in::kSize, s::query_roce_address_out::kSize,
     query_roce_address, kAfterInit},
    {Op::SET_ROCE_ADDRESS, kDriver, s::set_roce_address_in::kSize, s::set_roce_address_out::kSize,
     set_roce_address, kAfterInit},
    {Op::QUERY_HCA_VPORT_PKEY, kDriver, s::query_hca_vport_pkey_in::kSize, s::query_hca_vport_pkey_out::kSize,
     query_hca_vport_pkey, kAfterInit},
    {Op::QUERY_VPORT_COUNTER, "PRM 12.17.1", s::query_vport_counter_in::kSize, s::query_vport_counter_out::kSize,
     query_vport_counter, kAfterInit},
    {Op::ALLOC_Q_COUNTER, kDriver, s::alloc_q_counter_in::kSize, s::alloc_q_counter_out::kSize,
     alloc_q_counter, kAfterInit},
    {Op::DEALLOC_Q_COUNTER, kDriver, s::dealloc_q_counter_in::kSize, s::dealloc_q_counter_out::kSize,
     dealloc_q_counter, kAfterInit},
    {Op::QUERY_Q_COUNTER, kDriver, s::query_q_counter_in::kSize, s::query_q_counter_out::kSize,
     query_q_counter, kAfterInit},
    {Op::ALLOC_PD, "PRM 12.3.13", s::alloc_pd_in::kSize, s::alloc_pd_out::kSize,
     alloc_pd, kAfterInit},
    {Op::DEALLOC_PD, "PRM 12.3.14", s::dealloc_pd_in::kSize, s::dealloc_pd_out::kSize,
     dealloc_pd, kAfterInit},
    {Op::ALLOC_UAR, "PRM 12.3.15", s::alloc_uar_in::kSize, s::alloc_uar_out::kSize,
     alloc_uar, kAfterInit},
    {Op::DEALLOC_UAR, "PRM 12.3.16", s::dealloc_uar_in::kSize, s::dealloc_uar_out::kSize,
     dealloc_uar, kAfterInit},
    {Op::ACCESS_REG, "PRM 12.4.1", s::access_register_in::kSize, s::access_register_out::kSize,
     access_reg, kAfterEnable},
    {Op::ATTACH_TO_MCG, kDriver, s::attach_to_mcg_in::kSize, s::attach_to_mcg_out::kSize,
     attach_to_mcg, kAfterInit},
    {Op::DETACH_FROM_MCG, kDriver, s::detach_from_mcg_in::kSize, s::detach_from_mcg_out::kSize,
     detach_from_mcg, kAfterInit},
    {Op::NOP, "PRM 12.18.1", s::nop_in::kSize, s::nop_out::kSize, nop, kAlways},
    {Op::ALLOC_XRCD, kDriver, s::alloc_xrcd_in::kSize, s::alloc_xrcd_out::kSize,
     alloc_xrcd, kAfterInit},
    {Op::DEALLOC_XRCD, kDriver, s::dealloc_xrcd_in::kSize, s::dealloc_xrcd_out::kSize,
     dealloc_xrcd, kAfterInit},
    {Op::ALLOC_TRANSPORT_DOMAIN, "PRM 12.3.18", s::alloc_transport_domain_in::kSize, s::alloc_transport_domain_out::kSize,
     alloc_transport_domain, kAfterInit},
    {Op::DEALLOC_TRANSPORT_DOMAIN, "PRM 12.3.19", s::dealloc_transport_domain_in::kSize, s::dealloc_transport_domain_out::kSize,
     dealloc_transport_domain, kAfterInit},
    {Op::CREATE_TIR, "PRM 12.8.1", s::create_tir_in::kSize, s::create_tir_out::kSize,
     create_tir, kAfterInit},
    {Op::MODIFY_TIR, "PRM 12.8.2", s::modify_tir_in::kSize, s::modify_tir_out::kSize,
     modify_tir, kAfterInit},
    {Op::DESTROY_TIR, "PRM 12.8.3", s::destroy_tir_in::kSize, s::destroy_tir_out::kSize,
     destroy_tir, kAfterInit},
    {Op::QUERY_TIR, "PRM 12.8.4", s::query_tir_in::kSize, s::query_tir_out::kSize,
     query_tir, kAfterInit},
    {Op::CREATE_SQ, "PRM 12.10.1", s::create_sq_in::kSize, s::create_sq_out::kSize,
     create_sq, kAfterInit},
    {Op::MODIFY_SQ, "PRM 12.10.2", s::modify_sq_in::kSize, s::modify_sq_out::kSize,
     modify_sq, kAfterInit},
    {Op::DESTROY_SQ, "PRM 12.10.3", s::destroy_sq_in::kSize, s::destroy_sq_out::kSize,
     destroy_sq, kAfterInit},
    {Op::QUERY_SQ, "PRM 12.10.4", s::query_sq_in::kSize, s::query_sq_out::kSize,
     query_sq, kAfterInit},
    {Op::CREATE_RQ, "PRM 12.11.1", s::create_rq_in::kSize, s::create_rq_out::kSize,
     create_rq, kAfterInit},
    {Op::MODIFY_RQ, "PRM 12.11.2", s::modify_rq_in::kSize, s::modify_rq_out::kSize,
     modify_rq, kAfterInit},
    {Op::DESTROY_RQ, "PRM 12.11.3", s::destroy_rq_in::kSize, s::destroy_rq_out::kSize,
     destroy_rq, kAfterInit},
    {Op::QUERY_RQ, "PRM 12.11.4", s::query_rq_in::kSize, s::query_rq_out::kSize,
     query_rq, kAfterInit},
    {Op::CREATE_RMP, "PRM 12.13.1", s::create_rmp_in::kSize, s::create_rmp_out::kSize,
     create_rmp, kAfterInit},
    {Op::MODIFY_RMP, "PRM 12.13.2", s::modify_rmp_in::kSize, s::modify_rmp_out::kSize,
     modify_rmp, kAfterInit},
    {Op::DESTROY_RMP, "PRM 12.13.3", s::destroy_rmp_in::kSize, s::destroy_rmp_out::kSize,
     destroy_rmp, kAfterInit},
    {Op::QUERY_RMP, "PRM 12.13.4", s::query_rmp_in::kSize, s::query_rmp_out::kSize,
     query_rmp, kAfterInit},
    {Op::CREATE_TIS, "PRM 12.9.1", s::create_tis_in::kSize, s::create_tis_out::kSize,
     create_tis, kAfterInit},
    {Op::MODIFY_TIS, "PRM 12.9.2", s::modify_tis_in::kSize, s::modify_tis_out::kSize,
     modify_tis, kAfterInit},
    {Op::DESTROY_TIS, "PRM 12.9.3", s::destroy_tis_in::kSize, s::destroy_tis_out::kSize,
     destroy_tis, kAfterInit},
    {Op::QUERY_TIS, "PRM 12.9.4", s::query_tis_in::kSize, s::query_tis_out::kSize,
     query_tis, kAfterInit},
    {Op::CREATE_RQT, "PRM 12.12.1", s::create_rqt_in::kSize, s::create_rqt_out::kSize,
     create_rqt, kAfterInit},
    {Op::MODIFY_RQT, "PRM 12.12.2", s::modify_rqt_in::kSize, s::modify_rqt_out::kSize,
     modify_rqt, kAfterInit},
    {Op::DESTROY_RQT, "PRM 12.12.3", s::destroy_rqt_in::kSize, s::destroy_rqt_out::kSize,
     destroy_rqt, kAfterInit},
    {Op::QUERY_RQT, "PRM 12.12.4", s::query_rqt_in::kSize, s::query_rqt_out::kSize,
     query_rqt, kAfterInit},
    {Op::SET_FLOW_TABLE_ROOT, "PRM 12.14.4", s::set_flow_table_root_in::kSize, s::set_flow_table_root_out::kSize,
     set_flow_table_root, kAfterInit},
    {Op::CREATE_FLOW_TABLE, "PRM 12.14.1", s::create_flow_table_in::kSize, s::create_flow_table_out::kSize,
     create_flow_table, kAfterInit},
    {Op::DESTROY_FLOW_TABLE, "PRM 12.14.3", s::destroy_flow_table_in::kSize, s::destroy_flow_table_out::kSize,
     destroy_flow_table, kAfterInit},
    {Op::QUERY_FLOW_TABLE, "PRM 12.14.5", s::query_flow_table_in::kSize, s::query_flow_table_out::kSize,
     query_flow_table, kAfterInit},
    {Op::CREATE_FLOW_GROUP, "PRM 12.14.6", s::create_flow_group_in::kSize, s::create_flow_group_out::kSize,
     create_flow_group, kAfterInit},
    {Op::DESTROY_FLOW_GROUP, "PRM 12.14.7", s::destroy_flow_group_in::kSize, s::destroy_flow_group_out::kSize,
     destroy_flow_group, kAfterInit},
    {Op::QUERY_FLOW_GROUP, "PRM 12.14.8", s::query_flow_group_in::kSize, s::query_flow_group_out::kSize,
     query_flow_group, kAfterInit},
    {Op::SET_FLOW_TABLE_ENTRY, "PRM 12.14.9", s::set_flow_table_entry_in::kSize, s::set_flow_table_entry_out::kSize,
     set_flow_table_entry, kAfterInit},
    {Op::QUERY_FLOW_TABLE_ENTRY, "PRM 12.14.10", s::query_flow_table_entry_in::kSize, s::query_flow_table_entry_out::kSize,
     query_flow_table_entry, kAfterInit},
    {Op::DELETE_FLOW_TABLE_ENTRY, "PRM 12.14.11", s::delete_flow_table_entry_in::kSize, s::delete_flow_table_entry_out::kSize,
     delete_flow_table_entry, kAfterInit},
    {Op::MODIFY_FLOW_TABLE, "PRM 12.14.2", s::modify_flow_table_in::kSize, s::modify_flow_table_out::kSize,
     modify_flow_table, kAfterInit},
});

static_assert(std::ranges::is_sorted(kTable, {}, &CommandSpec::opcode));

}  // namespace

std::span<const CommandSpec> command_table() { return kTable; }

const CommandSpec* find_command(std::uint16_t opcode) {
  const auto at = std::ranges::lower_bound(kTable, static_cast<Op>(opcode), {}, &CommandSpec::opcode);
  return at != kTable.end() && at->opcode == static_cast<Op>(opcode) ? &*at : nullptr;
}

}  // namespace softhca::connectx
