#include "connectx/command/command_table.h"

#include <algorithm>
#include <array>

#include "connectx/command/commands.h"
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

/// The usual line: handler and structures have the command's name. Lengths are the fixed parts.
#define COMMAND(NAME, name, section, states) \
  {Op::NAME, section, s::name##_in::kSize, s::name##_out::kSize, name, states}

constexpr auto kTable = std::to_array<CommandSpec>({
    // opcode, section, least input, least output, handler, when; or COMMAND
    COMMAND(QUERY_HCA_CAP, query_hca_cap, "PRM 12.3.3", kAfterEnable),
    COMMAND(QUERY_ADAPTER, query_adapter, "PRM 12.3.5", kAfterEnable),
    COMMAND(INIT_HCA, init_hca, "PRM 12.3.6", kBeforeInit),
    COMMAND(TEARDOWN_HCA, teardown_hca, "PRM 12.3.7", kAfterEnable),
    {Op::ENABLE_HCA, "PRM 12.3.8", s::enable_hca_in::kSize, kHeaderAndOneDword, enable_hca,
     kBeforeEnable},
    {Op::DISABLE_HCA, "PRM 12.3.9", s::disable_hca_in::kSize, kHeaderAndOneDword, disable_hca,
     kAfterEnable},
    COMMAND(QUERY_PAGES, query_pages, "PRM 12.3.1", kAfterEnable),
    COMMAND(MANAGE_PAGES, manage_pages, "PRM 12.3.2", kAfterEnable),
    COMMAND(SET_HCA_CAP, set_hca_cap, "PRM 12.3.4", kBeforeInit),
    COMMAND(QUERY_ISSI, query_issi, "PRM 12.3.10", kAfterEnable),
    COMMAND(SET_ISSI, set_issi, "PRM 12.3.11", kAfterEnable),
    COMMAND(SET_DRIVER_VERSION, set_driver_version, "PRM 12.3.12", kAfterEnable),
    COMMAND(CREATE_MKEY, create_mkey, "PRM 12.5.1", kAfterInit),
    COMMAND(QUERY_MKEY, query_mkey, "PRM 12.5.2", kAfterInit),
    COMMAND(DESTROY_MKEY, destroy_mkey, "PRM 12.5.3", kAfterInit),
    {Op::QUERY_SPECIAL_CONTEXTS, "PRM 12.5.4", s::query_special_contexts_in::kSize,
     kHeaderAndTwoDwords, query_special_contexts, kAfterInit},
    COMMAND(CREATE_EQ, create_eq, "PRM 12.6.1", kAfterInit),
    COMMAND(DESTROY_EQ, destroy_eq, "PRM 12.6.2", kAfterInit),
    COMMAND(QUERY_EQ, query_eq, "PRM 12.6.3", kAfterInit),
    COMMAND(GEN_EQE, gen_eqe, "PRM 12.6.4", kAfterInit),
    COMMAND(CREATE_CQ, create_cq, "PRM 12.7.1", kAfterInit),
    COMMAND(DESTROY_CQ, destroy_cq, "PRM 12.7.2", kAfterInit),
    COMMAND(QUERY_CQ, query_cq, "PRM 12.7.3", kAfterInit),
    COMMAND(MODIFY_CQ, modify_cq, "PRM 12.7.4", kAfterInit),
    COMMAND(CREATE_QP, create_qp, kDriver, kAfterInit),
    COMMAND(DESTROY_QP, destroy_qp, kDriver, kAfterInit),
    COMMAND(RST2INIT_QP, rst2init_qp, kDriver, kAfterInit),
    COMMAND(INIT2RTR_QP, init2rtr_qp, kDriver, kAfterInit),
    COMMAND(RTR2RTS_QP, rtr2rts_qp, kDriver, kAfterInit),
    COMMAND(RTS2RTS_QP, rts2rts_qp, kDriver, kAfterInit),
    COMMAND(SQERR2RTS_QP, sqerr2rts_qp, kDriver, kAfterInit),
    COMMAND(QP_2ERR, qp_2err, kDriver, kAfterInit),
    COMMAND(QP_2RST, qp_2rst, kDriver, kAfterInit),
    COMMAND(QUERY_QP, query_qp, kDriver, kAfterInit),
    COMMAND(SQD_RTS_QP, sqd_rts_qp, kDriver, kAfterInit),
    COMMAND(INIT2INIT_QP, init2init_qp, kDriver, kAfterInit),
    COMMAND(CREATE_SRQ, create_srq, kDriver, kAfterInit),
    COMMAND(DESTROY_SRQ, destroy_srq, kDriver, kAfterInit),
    COMMAND(QUERY_SRQ, query_srq, kDriver, kAfterInit),
    COMMAND(ARM_RQ, arm_rq, kDriver, kAfterInit),
    COMMAND(CREATE_XRC_SRQ, create_xrc_srq, kDriver, kAfterInit),
    COMMAND(DESTROY_XRC_SRQ, destroy_xrc_srq, kDriver, kAfterInit),
    COMMAND(QUERY_XRC_SRQ, query_xrc_srq, kDriver, kAfterInit),
    COMMAND(ARM_XRC_SRQ, arm_xrc_srq, kDriver, kAfterInit),
    COMMAND(QUERY_VPORT_STATE, query_vport_state, "PRM 12.16.1", kAfterInit),
    COMMAND(MODIFY_VPORT_STATE, modify_vport_state, "PRM 12.16.2", kAfterInit),
    COMMAND(QUERY_NIC_VPORT_CONTEXT, query_nic_vport_context, "PRM 12.16.3", kAfterInit),
    COMMAND(MODIFY_NIC_VPORT_CONTEXT, modify_nic_vport_context, "PRM 12.16.4", kAfterInit),
    COMMAND(QUERY_ROCE_ADDRESS, query_roce_address, kDriver, kAfterInit),
    COMMAND(SET_ROCE_ADDRESS, set_roce_address, kDriver, kAfterInit),
    COMMAND(QUERY_HCA_VPORT_PKEY, query_hca_vport_pkey, kDriver, kAfterInit),
    COMMAND(QUERY_VPORT_COUNTER, query_vport_counter, "PRM 12.17.1", kAfterInit),
    COMMAND(ALLOC_Q_COUNTER, alloc_q_counter, kDriver, kAfterInit),
    COMMAND(DEALLOC_Q_COUNTER, dealloc_q_counter, kDriver, kAfterInit),
    COMMAND(QUERY_Q_COUNTER, query_q_counter, kDriver, kAfterInit),
    COMMAND(ALLOC_PD, alloc_pd, "PRM 12.3.13", kAfterInit),
    COMMAND(DEALLOC_PD, dealloc_pd, "PRM 12.3.14", kAfterInit),
    COMMAND(ALLOC_UAR, alloc_uar, "PRM 12.3.15", kAfterInit),
    COMMAND(DEALLOC_UAR, dealloc_uar, "PRM 12.3.16", kAfterInit),
    {Op::ACCESS_REG, "PRM 12.4.1", s::access_register_in::kSize, s::access_register_out::kSize,
     access_reg, kAfterEnable},
    COMMAND(ATTACH_TO_MCG, attach_to_mcg, kDriver, kAfterInit),
    COMMAND(DETACH_FROM_MCG, detach_from_mcg, kDriver, kAfterInit),
    COMMAND(NOP, nop, "PRM 12.18.1", kAlways),
    COMMAND(ALLOC_XRCD, alloc_xrcd, kDriver, kAfterInit),
    COMMAND(DEALLOC_XRCD, dealloc_xrcd, kDriver, kAfterInit),
    COMMAND(ALLOC_TRANSPORT_DOMAIN, alloc_transport_domain, "PRM 12.3.18", kAfterInit),
    COMMAND(DEALLOC_TRANSPORT_DOMAIN, dealloc_transport_domain, "PRM 12.3.19", kAfterInit),
    COMMAND(CREATE_TIR, create_tir, "PRM 12.8.1", kAfterInit),
    COMMAND(MODIFY_TIR, modify_tir, "PRM 12.8.2", kAfterInit),
    COMMAND(DESTROY_TIR, destroy_tir, "PRM 12.8.3", kAfterInit),
    COMMAND(QUERY_TIR, query_tir, "PRM 12.8.4", kAfterInit),
    COMMAND(CREATE_SQ, create_sq, "PRM 12.10.1", kAfterInit),
    COMMAND(MODIFY_SQ, modify_sq, "PRM 12.10.2", kAfterInit),
    COMMAND(DESTROY_SQ, destroy_sq, "PRM 12.10.3", kAfterInit),
    COMMAND(QUERY_SQ, query_sq, "PRM 12.10.4", kAfterInit),
    COMMAND(CREATE_RQ, create_rq, "PRM 12.11.1", kAfterInit),
    COMMAND(MODIFY_RQ, modify_rq, "PRM 12.11.2", kAfterInit),
    COMMAND(DESTROY_RQ, destroy_rq, "PRM 12.11.3", kAfterInit),
    COMMAND(QUERY_RQ, query_rq, "PRM 12.11.4", kAfterInit),
    COMMAND(CREATE_RMP, create_rmp, "PRM 12.13.1", kAfterInit),
    COMMAND(MODIFY_RMP, modify_rmp, "PRM 12.13.2", kAfterInit),
    COMMAND(DESTROY_RMP, destroy_rmp, "PRM 12.13.3", kAfterInit),
    COMMAND(QUERY_RMP, query_rmp, "PRM 12.13.4", kAfterInit),
    COMMAND(CREATE_TIS, create_tis, "PRM 12.9.1", kAfterInit),
    COMMAND(MODIFY_TIS, modify_tis, "PRM 12.9.2", kAfterInit),
    COMMAND(DESTROY_TIS, destroy_tis, "PRM 12.9.3", kAfterInit),
    COMMAND(QUERY_TIS, query_tis, "PRM 12.9.4", kAfterInit),
    COMMAND(CREATE_RQT, create_rqt, "PRM 12.12.1", kAfterInit),
    COMMAND(MODIFY_RQT, modify_rqt, "PRM 12.12.2", kAfterInit),
    COMMAND(DESTROY_RQT, destroy_rqt, "PRM 12.12.3", kAfterInit),
    COMMAND(QUERY_RQT, query_rqt, "PRM 12.12.4", kAfterInit),
    COMMAND(SET_FLOW_TABLE_ROOT, set_flow_table_root, "PRM 12.14.4", kAfterInit),
    COMMAND(CREATE_FLOW_TABLE, create_flow_table, "PRM 12.14.1", kAfterInit),
    COMMAND(DESTROY_FLOW_TABLE, destroy_flow_table, "PRM 12.14.3", kAfterInit),
    COMMAND(QUERY_FLOW_TABLE, query_flow_table, "PRM 12.14.5", kAfterInit),
    COMMAND(CREATE_FLOW_GROUP, create_flow_group, "PRM 12.14.6", kAfterInit),
    COMMAND(DESTROY_FLOW_GROUP, destroy_flow_group, "PRM 12.14.7", kAfterInit),
    COMMAND(QUERY_FLOW_GROUP, query_flow_group, "PRM 12.14.8", kAfterInit),
    COMMAND(SET_FLOW_TABLE_ENTRY, set_flow_table_entry, "PRM 12.14.9", kAfterInit),
    COMMAND(QUERY_FLOW_TABLE_ENTRY, query_flow_table_entry, "PRM 12.14.10", kAfterInit),
    COMMAND(DELETE_FLOW_TABLE_ENTRY, delete_flow_table_entry, "PRM 12.14.11", kAfterInit),
    COMMAND(MODIFY_FLOW_TABLE, modify_flow_table, "PRM 12.14.2", kAfterInit),
});

#undef COMMAND

static_assert(std::ranges::is_sorted(kTable, {}, &CommandSpec::opcode));

}  // namespace

std::span<const CommandSpec> command_table() { return kTable; }

const CommandSpec* find_command(std::uint16_t opcode) {
  const auto at =
      std::ranges::lower_bound(kTable, static_cast<Op>(opcode), {}, &CommandSpec::opcode);
  return at != kTable.end() && at->opcode == static_cast<Op>(opcode) ? &*at : nullptr;
}

}  // namespace softhca::connectx
