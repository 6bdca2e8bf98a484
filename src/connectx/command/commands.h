// The handlers of all commands. A function has its command's name in lower case; the checks stand
// in the order of the document. command_table.cc says which opcode goes where.
#pragma once

#include "connectx/command/command.h"

namespace softhca::connectx {

// Function (PRM 12.3)
CommandResult enable_hca(Device& device, const Command& command);
CommandResult disable_hca(Device& device, const Command& command);
CommandResult init_hca(Device& device, const Command& command);
CommandResult teardown_hca(Device& device, const Command& command);
CommandResult query_issi(Device& device, const Command& command);
CommandResult set_issi(Device& device, const Command& command);
CommandResult query_pages(Device& device, const Command& command);
CommandResult manage_pages(Device& device, const Command& command);
CommandResult query_hca_cap(Device& device, const Command& command);
CommandResult set_hca_cap(Device& device, const Command& command);
CommandResult query_adapter(Device& device, const Command& command);
CommandResult set_driver_version(Device& device, const Command& command);
CommandResult nop(Device& device, const Command& command);

// Registers (PRM 12.4)
CommandResult access_reg(Device& device, const Command& command);

// Protection domains, UARs and other plain numbers (PRM 12.3)
CommandResult alloc_pd(Device& device, const Command& command);
CommandResult dealloc_pd(Device& device, const Command& command);
CommandResult alloc_uar(Device& device, const Command& command);
CommandResult dealloc_uar(Device& device, const Command& command);
CommandResult alloc_transport_domain(Device& device, const Command& command);
CommandResult dealloc_transport_domain(Device& device, const Command& command);
CommandResult alloc_xrcd(Device& device, const Command& command);
CommandResult dealloc_xrcd(Device& device, const Command& command);
CommandResult alloc_q_counter(Device& device, const Command& command);
CommandResult dealloc_q_counter(Device& device, const Command& command);
CommandResult query_q_counter(Device& device, const Command& command);

// Memory keys (PRM 12.5)
CommandResult create_mkey(Device& device, const Command& command);
CommandResult query_mkey(Device& device, const Command& command);
CommandResult destroy_mkey(Device& device, const Command& command);
CommandResult query_special_contexts(Device& device, const Command& command);

// Event and completion queues (PRM 12.6, 12.7)
CommandResult create_eq(Device& device, const Command& command);
CommandResult destroy_eq(Device& device, const Command& command);
CommandResult query_eq(Device& device, const Command& command);
CommandResult gen_eqe(Device& device, const Command& command);
CommandResult create_cq(Device& device, const Command& command);
CommandResult destroy_cq(Device& device, const Command& command);
CommandResult query_cq(Device& device, const Command& command);
CommandResult modify_cq(Device& device, const Command& command);

// Virtual port (PRM 12.16, 12.17)
CommandResult query_vport_state(Device& device, const Command& command);
CommandResult modify_vport_state(Device& device, const Command& command);
CommandResult query_nic_vport_context(Device& device, const Command& command);
CommandResult modify_nic_vport_context(Device& device, const Command& command);
CommandResult query_hca_vport_pkey(Device& device, const Command& command);
CommandResult query_vport_counter(Device& device, const Command& command);

// Queue pairs (mlx5 driver interface)
CommandResult create_qp(Device& device, const Command& command);
CommandResult destroy_qp(Device& device, const Command& command);
CommandResult rst2init_qp(Device& device, const Command& command);
CommandResult init2rtr_qp(Device& device, const Command& command);
CommandResult rtr2rts_qp(Device& device, const Command& command);
CommandResult rts2rts_qp(Device& device, const Command& command);
CommandResult sqerr2rts_qp(Device& device, const Command& command);
CommandResult qp_2err(Device& device, const Command& command);
CommandResult qp_2rst(Device& device, const Command& command);
CommandResult query_qp(Device& device, const Command& command);
CommandResult sqd_rts_qp(Device& device, const Command& command);
CommandResult init2init_qp(Device& device, const Command& command);

// Shared receive queues (PRM 12.13, mlx5 driver interface)
CommandResult create_srq(Device& device, const Command& command);
CommandResult destroy_srq(Device& device, const Command& command);
CommandResult query_srq(Device& device, const Command& command);
CommandResult arm_rq(Device& device, const Command& command);
CommandResult create_xrc_srq(Device& device, const Command& command);
CommandResult destroy_xrc_srq(Device& device, const Command& command);
CommandResult query_xrc_srq(Device& device, const Command& command);
CommandResult arm_xrc_srq(Device& device, const Command& command);
CommandResult create_rmp(Device& device, const Command& command);
CommandResult modify_rmp(Device& device, const Command& command);
CommandResult destroy_rmp(Device& device, const Command& command);
CommandResult query_rmp(Device& device, const Command& command);

// RoCE addresses and multicast (mlx5 driver interface)
CommandResult query_roce_address(Device& device, const Command& command);
CommandResult set_roce_address(Device& device, const Command& command);
CommandResult attach_to_mcg(Device& device, const Command& command);
CommandResult detach_from_mcg(Device& device, const Command& command);

// TIR, TIS, SQ, RQ, RQT (PRM 12.8 to 12.12)
CommandResult create_tir(Device& device, const Command& command);
CommandResult modify_tir(Device& device, const Command& command);
CommandResult destroy_tir(Device& device, const Command& command);
CommandResult query_tir(Device& device, const Command& command);
CommandResult create_tis(Device& device, const Command& command);
CommandResult modify_tis(Device& device, const Command& command);
CommandResult destroy_tis(Device& device, const Command& command);
CommandResult query_tis(Device& device, const Command& command);
CommandResult create_sq(Device& device, const Command& command);
CommandResult modify_sq(Device& device, const Command& command);
CommandResult destroy_sq(Device& device, const Command& command);
CommandResult query_sq(Device& device, const Command& command);
CommandResult create_rq(Device& device, const Command& command);
CommandResult modify_rq(Device& device, const Command& command);
CommandResult destroy_rq(Device& device, const Command& command);
CommandResult query_rq(Device& device, const Command& command);
CommandResult create_rqt(Device& device, const Command& command);
CommandResult modify_rqt(Device& device, const Command& command);
CommandResult destroy_rqt(Device& device, const Command& command);
CommandResult query_rqt(Device& device, const Command& command);

// Flow tables (PRM 12.14)
CommandResult create_flow_table(Device& device, const Command& command);
CommandResult modify_flow_table(Device& device, const Command& command);
CommandResult destroy_flow_table(Device& device, const Command& command);
CommandResult set_flow_table_root(Device& device, const Command& command);
CommandResult query_flow_table(Device& device, const Command& command);
CommandResult create_flow_group(Device& device, const Command& command);
CommandResult destroy_flow_group(Device& device, const Command& command);
CommandResult query_flow_group(Device& device, const Command& command);
CommandResult set_flow_table_entry(Device& device, const Command& command);
CommandResult query_flow_table_entry(Device& device, const Command& command);
CommandResult delete_flow_table_entry(Device& device, const Command& command);

}  // namespace softhca::connectx
