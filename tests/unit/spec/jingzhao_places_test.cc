// Every field and code of the JingZhao document, typed from its tables: nothing here is taken from
// src/spec/jingzhao/*.layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spec/infiniband/qp_states.h"
#include "spec/jingzhao/command.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/cqe.h"
#include "spec/jingzhao/registers.h"
#include "spec/jingzhao/wqe.h"
#include "spec/structures.h"

namespace softhca::spec::jingzhao {
namespace {

struct Field {
  std::string_view structure, name;
  std::size_t offset;
  unsigned hi, lo;
};

// Offsets, and bits of the dword there. Bits above 31 are those of a field of two dwords, as in
// "qpc_base[63:32]" and "qpc_base[31:8]".
constexpr Field kFields[] = {
    // Tables 3-1-2 to 3-1-4, 3-1-6, 3-1-7: registers. sq_head is as drawn.
    {"reset_register", "reset", 0, 0, 0},
    {"hcr", "in_param_h", 0x00, 31, 0},
    {"hcr", "in_param_l", 0x04, 31, 0},
    {"hcr", "in_modifier", 0x08, 31, 0},
    {"hcr", "out_param_h", 0x0C, 31, 0},
    {"hcr", "out_param_l", 0x10, 31, 0},
    {"hcr", "token", 0x14, 31, 16},
    {"hcr", "status", 0x18, 31, 24},
    {"hcr", "go", 0x18, 23, 23},
    {"hcr", "e", 0x18, 22, 22},
    {"hcr", "op_modifier", 0x18, 19, 12},
    {"hcr", "op", 0x18, 11, 0},
    {"uar_page", "sq_head", 0x00, 31, 8},
    {"uar_page", "f", 0x00, 5, 5},
    {"uar_page", "opcode", 0x00, 4, 0},
    {"uar_page", "qpn", 0x04, 31, 8},
    {"uar_page", "size0", 0x04, 7, 0},
    // Table 3-2-4. Where the table says that only the low bits count, these.
    {"query_dev_lim_out", "reserved_qp", 0x00, 27, 24},
    {"query_dev_lim_out", "reserved_cq", 0x00, 19, 16},
    {"query_dev_lim_out", "reserved_eq", 0x00, 11, 8},
    {"query_dev_lim_out", "reserved_mtt", 0x00, 3, 0},
    {"query_dev_lim_out", "reserved_pd", 0x04, 19, 16},
    {"query_dev_lim_out", "reserved_lkey", 0x04, 3, 0},
    {"query_dev_lim_out", "max_qp_sz", 0x08, 31, 16},
    {"query_dev_lim_out", "max_cq_sz", 0x08, 15, 0},
    {"query_dev_lim_out", "max_qps", 0x0C, 28, 24},
    {"query_dev_lim_out", "max_cqs", 0x0C, 20, 16},
    {"query_dev_lim_out", "max_eqs", 0x0C, 10, 8},
    {"query_dev_lim_out", "max_mpts", 0x0C, 5, 0},
    {"query_dev_lim_out", "max_pds", 0x10, 29, 24},
    {"query_dev_lim_out", "max_gids", 0x10, 11, 8},
    {"query_dev_lim_out", "max_pkeys", 0x10, 3, 0},
    {"query_dev_lim_out", "max_mtt_seg", 0x14, 23, 16},
    {"query_dev_lim_out", "qpc_entry_sz", 0x18, 31, 16},
    {"query_dev_lim_out", "cqc_entry_sz", 0x18, 15, 0},
    {"query_dev_lim_out", "eqc_entry_sz", 0x1C, 31, 16},
    {"query_dev_lim_out", "mpt_entry_sz", 0x1C, 15, 0},
    {"query_dev_lim_out", "ack_delay", 0x20, 27, 24},
    {"query_dev_lim_out", "max_mtu", 0x20, 23, 20},
    {"query_dev_lim_out", "max_port_width", 0x20, 19, 16},
    {"query_dev_lim_out", "max_vl", 0x20, 7, 4},
    {"query_dev_lim_out", "num_ports", 0x20, 3, 0},
    {"query_dev_lim_out", "min_page_sz", 0x24, 23, 16},
    {"query_dev_lim_out", "max_sg", 0x28, 23, 16},
    {"query_dev_lim_out", "max_desc_sz", 0x28, 15, 0},
    {"query_dev_lim_out", "max_sg_rq", 0x2C, 23, 16},
    {"query_dev_lim_out", "max_desc_sz_rq", 0x2C, 15, 0},
    {"query_dev_lim_out", "max_icm_sz", 0x30, 63, 0},
    // Tables 3-2-7, 3-2-10, 3-2-14, 3-2-23, 3-2-38.
    {"query_adapter_out", "board_id", 0x18, 63, 0},
    {"init_hca_in", "qpc_base", 0x08, 63, 8},
    {"init_hca_in", "log_num_qps", 0x0C, 7, 0},
    {"init_hca_in", "cqc_base", 0x10, 63, 8},
    {"init_hca_in", "log_num_cqs", 0x14, 7, 0},
    {"init_hca_in", "eqc_base", 0x18, 63, 8},
    {"init_hca_in", "log_num_eqs", 0x1C, 7, 0},
    {"init_hca_in", "mpt_base", 0x30, 63, 8},
    {"init_hca_in", "log_mpt_sz", 0x34, 7, 0},
    {"init_hca_in", "mtt_base", 0x38, 63, 0},
    {"icm_chunk", "virt", 0x00, 63, 0},
    {"icm_chunk", "page", 0x08, 63, 12},
    {"icm_chunk", "page_num", 0x0C, 11, 0},
    {"write_mtt_in", "mtt_start_index", 0x18, 63, 0},
    {"mtt_entry_group", "page_3", 0x00, 63, 0},
    {"mtt_entry_group", "page_2", 0x08, 63, 0},
    {"mtt_entry_group", "page_1", 0x10, 63, 0},
    {"mtt_entry_group", "page_0", 0x18, 63, 0},
    {"resize_cq_in", "logsize", 0x00, 31, 24},
    {"resize_cq_in", "lkey", 0x04, 31, 0},
    {"map_eq_modifier", "unmap", 0x00, 31, 31},
    {"map_eq_modifier", "eqn", 0x00, 30, 0},
    // Tables 3-2-18 and 3-2-19.
    {"mpt_entry", "sw_owns", 0x00, 31, 28},
    {"mpt_entry", "mio", 0x00, 17, 17},
    {"mpt_entry", "bind_enable", 0x00, 15, 15},
    {"mpt_entry", "physical", 0x00, 9, 9},
    {"mpt_entry", "region", 0x00, 8, 8},
    {"mpt_entry", "local_write", 0x00, 0, 0},
    {"mpt_entry", "remote_write", 0x00, 1, 1},
    {"mpt_entry", "remote_read", 0x00, 2, 2},
    {"mpt_entry", "remote_atomic", 0x00, 3, 3},
    {"mpt_entry", "mw_bind", 0x00, 4, 4},
    {"mpt_entry", "zero_based", 0x00, 5, 5},
    {"mpt_entry", "on_demand", 0x00, 6, 6},
    {"mpt_entry", "page_size", 0x04, 31, 0},
    {"mpt_entry", "key", 0x08, 31, 0},
    {"mpt_entry", "pd", 0x0C, 31, 0},
    {"mpt_entry", "start", 0x10, 63, 0},
    {"mpt_entry", "length", 0x18, 63, 0},
    {"mpt_entry", "lkey", 0x20, 31, 0},
    {"mpt_entry", "window_count", 0x24, 31, 0},
    {"mpt_entry", "window_count_limit", 0x28, 31, 0},
    {"mpt_entry", "mtt_seg", 0x2C, 63, 0},
    {"mpt_entry", "mtt_sz", 0x34, 31, 0},
    // Tables 3-2-28, 3-2-29, 3-2-33, 3-2-34.
    {"eq_context", "status", 0x00, 31, 28},
    {"eq_context", "owner", 0x00, 24, 24},
    {"eq_context", "tr", 0x00, 18, 18},
    {"eq_context", "state_armed", 0x00, 8, 8},
    {"eq_context", "start", 0x04, 63, 0},
    {"eq_context", "logsize", 0x0C, 31, 24},
    {"eq_context", "intr", 0x14, 7, 0},
    {"eq_context", "pd", 0x18, 31, 0},
    {"eq_context", "lkey", 0x1C, 31, 0},
    {"eq_context", "consumer_index", 0x28, 31, 0},
    {"eq_context", "producer_index", 0x2C, 31, 0},
    {"cq_context", "status", 0x00, 31, 28},
    {"cq_context", "tr", 0x00, 18, 18},
    {"cq_context", "state_armed", 0x00, 8, 8},
    {"cq_context", "start", 0x04, 63, 0},
    {"cq_context", "logsize", 0x0C, 31, 24},
    {"cq_context", "usrpage", 0x0C, 23, 0},
    {"cq_context", "comp_eqn", 0x10, 31, 0},
    {"cq_context", "pd", 0x14, 31, 0},
    {"cq_context", "lkey", 0x18, 31, 0},
    {"cq_context", "cqn", 0x2C, 31, 0},
    // Tables 3-2-40 to 3-2-42. The counters are as drawn.
    {"qp_context", "opt_param_mask", 0x00, 31, 0},
    {"qp_context", "state", 0x08, 31, 28},
    {"qp_context", "type", 0x08, 23, 16},
    {"qp_context", "mtu", 0x0C, 31, 29},
    {"qp_context", "msgmax", 0x0C, 28, 24},
    {"qp_context", "rq_entry_sz_log", 0x0C, 23, 16},
    {"qp_context", "sq_entry_sz_log", 0x0C, 15, 8},
    {"qp_context", "rlkey_arbel_sched_queue", 0x0C, 7, 0},
    {"qp_context", "usr_page", 0x10, 31, 0},
    {"qp_context", "local_qpn", 0x14, 31, 0},
    {"qp_context", "remote_qpn", 0x18, 31, 0},
    {"qp_context", "port", 0x1C, 26, 24},
    {"qp_context", "pkey_index", 0x1C, 6, 0},
    {"qp_context", "rnr_retry", 0x20, 31, 24},
    {"qp_context", "g_mylmc", 0x20, 23, 16},
    {"qp_context", "ackto", 0x24, 31, 24},
    {"qp_context", "mgid_index", 0x24, 23, 16},
    {"qp_context", "static_rate", 0x24, 15, 8},
    {"qp_context", "hop_limit", 0x24, 7, 0},
    {"qp_context", "sl_tclass_flowlabel", 0x28, 31, 0},
    {"qp_context", "dlid_dmac", 0x3C, 31, 16},
    {"qp_context", "slid_smac", 0x3C, 15, 0},
    {"qp_context", "smac_h", 0x40, 31, 0},
    {"qp_context", "dmac_h", 0x44, 31, 0},
    {"qp_context", "sip", 0x48, 31, 0},
    {"qp_context", "dip", 0x4C, 31, 0},
    {"qp_context", "pd", 0x5C, 31, 0},
    {"qp_context", "wqe_base", 0x60, 31, 0},
    {"qp_context", "wqe_lkey", 0x64, 31, 0},
    {"qp_context", "next_send_psn", 0x6C, 31, 0},
    {"qp_context", "cqn_snd", 0x70, 31, 0},
    {"qp_context", "snd_wqe_base_l", 0x74, 31, 0},
    {"qp_context", "snd_wqe_len", 0x78, 31, 0},
    {"qp_context", "last_acked_psn", 0x7C, 31, 0},
    {"qp_context", "ssn", 0x80, 31, 0},
    {"qp_context", "rnr_timer", 0x84, 31, 24},
    {"qp_context", "epsn", 0x84, 23, 0},
    {"qp_context", "ra_buff_indx", 0x88, 31, 0},
    {"qp_context", "cqn_rcv", 0x8C, 31, 0},
    {"qp_context", "rcv_wqe_base_l", 0x90, 31, 0},
    {"qp_context", "rcv_wqe_len", 0x94, 31, 0},
    {"qp_context", "qkey", 0x98, 31, 0},
    {"qp_context", "rmsn", 0x9C, 31, 0},
    {"qp_context", "rq_wqe_counter", 0xBC, 31, 16},
    {"qp_context", "sq_wqe_counter", 0xBC, 15, 0},
    // Tables 3-3-2 and 3-3-4: CQEs. The owner is bit 7 of its byte.
    {"cqe", "my_qpn", 0x00, 31, 0},
    {"cqe", "my_ee", 0x04, 31, 0},
    {"cqe", "rqpn", 0x08, 31, 0},
    {"cqe", "rlid", 0x0C, 31, 16},
    {"cqe", "g_mlpath", 0x0C, 15, 8},
    {"cqe", "sl_ipok", 0x0C, 7, 0},
    {"cqe", "imm", 0x10, 31, 0},
    {"cqe", "byte_cnt", 0x14, 31, 0},
    {"cqe", "wqe", 0x18, 31, 0},
    {"cqe", "owner", 0x1C, 31, 31},
    {"cqe", "is_send", 0x1C, 15, 8},
    {"cqe", "opcode", 0x1C, 7, 0},
    {"error_cqe", "my_qpn", 0x00, 31, 0},
    {"error_cqe", "db_cnt", 0x10, 31, 16},
    {"error_cqe", "vendor_err", 0x10, 15, 8},
    {"error_cqe", "syndrome", 0x10, 7, 0},
    {"error_cqe", "wqe", 0x18, 31, 0},
    {"error_cqe", "owner", 0x1C, 31, 31},
    {"error_cqe", "opcode", 0x1C, 7, 0},
    // Tables 3-4-3, 3-4-5, 3-4-7, 3-4-9, 3-4-11, 3-4-13: units of WQEs.
    {"next_unit", "nop", 0x00, 4, 0},
    {"next_unit", "nda", 0x00, 31, 6},
    {"next_unit", "nds", 0x04, 5, 0},
    {"next_unit", "f", 0x04, 6, 6},
    {"next_unit", "d", 0x04, 7, 7},
    {"next_unit", "nee", 0x04, 31, 8},
    {"next_unit", "s", 0x08, 1, 1},
    {"next_unit", "e", 0x08, 2, 2},
    {"next_unit", "c", 0x08, 3, 3},
    {"next_unit", "imm_data", 0x0C, 31, 0},
    {"raddr_unit", "raddr", 0x00, 63, 0},
    {"raddr_unit", "rkey", 0x08, 31, 0},
    {"atomic_unit", "swap_add", 0x00, 63, 0},
    {"atomic_unit", "cmp", 0x08, 63, 0},
    {"ud_unit", "port", 0x00, 31, 0},
    {"ud_unit", "dlid_dmac", 0x04, 31, 16},
    {"ud_unit", "slid_smac", 0x04, 15, 0},
    {"ud_unit", "smac_h", 0x08, 31, 0},
    {"ud_unit", "dmac_h", 0x0C, 31, 0},
    {"ud_unit", "sip", 0x10, 31, 0},
    {"ud_unit", "dip", 0x14, 31, 0},
    {"ud_unit", "dqpn", 0x20, 31, 0},
    {"ud_unit", "qkey", 0x24, 31, 0},
    {"inline_unit", "is_inline", 0x00, 31, 31},
    {"inline_unit", "length", 0x00, 30, 0},
    {"data_unit", "is_inline", 0x00, 31, 31},
    {"data_unit", "byte_cnt", 0x00, 30, 0},
    {"data_unit", "lkey", 0x04, 31, 0},
    {"data_unit", "addr", 0x08, 63, 0},
};

/// Fields of the layouts where the document is silent (docs/jingzhao.md).
constexpr std::string_view kAdded[] = {
    "uar_page.arm_cqn",        "uar_page.arm_eqn",         "cq_context.producer_index",
    "qp_context.limits_valid", "qp_context.retry_cnt",     "qp_context.remote_read",
    "qp_context.remote_write", "qp_context.remote_atomic", "error_cqe.is_send",
    "next_unit.posted",        "mtt_entry.page",
};
constexpr std::string_view kAddedStructures[] = {"mad_ifc_out", "eqe", "cq_error_eqe", "cmd_eqe"};

std::vector<test::Structure> structures() {
  return test::structures_of<registers_structures, command_structures, context_structures,
                             wqe_structures, cqe_structures>();
}

TEST(JingzhaoPlaces, EachFieldOfTheDocumentIsWhereItsTableHasIt) {
  const auto all = structures();
  for (const auto& row : kFields) {
    const auto structure = std::ranges::find(all, row.structure, &test::Structure::name);
    ASSERT_NE(structure, all.end()) << row.structure;
    const auto field = std::ranges::find(structure->fields, row.name, &util::FieldInfo::name);
    ASSERT_NE(field, structure->fields.end()) << row.structure << '.' << row.name;
    EXPECT_EQ(field->offset, row.offset) << row.structure << '.' << row.name;
    EXPECT_EQ(field->hi, row.hi) << row.structure << '.' << row.name;
    EXPECT_EQ(field->lo, row.lo) << row.structure << '.' << row.name;
  }
}

TEST(JingzhaoPlaces, NoOtherFieldIsTheDocuments) {
  for (const auto& structure : structures()) {
    if (std::ranges::count(kAddedStructures, structure.name) != 0) continue;
    for (const auto& field : structure.fields) {
      const bool typed = std::ranges::any_of(kFields, [&](const Field& row) {
        return row.structure == structure.name && row.name == field.name;
      });
      const auto full = std::string(structure.name) + "." + std::string(field.name);
      EXPECT_TRUE(typed || std::ranges::count(kAdded, full) != 0) << full;
    }
  }
}

TEST(JingzhaoCodes, OfCommandsAreThoseOfTable321) {
  using enum command_opcode;
  const std::map<command_opcode, int> codes{
      {QUERY_DEV_LIM, 0x3},    {QUERY_ADAPTER, 0x6},   {INIT_HCA, 0x7},
      {CLOSE_HCA, 0x8},        {MAP_ICM, 0xFFA},       {UNMAP_ICM, 0xFF9},
      {SW2HW_MPT, 0xD},        {HW2SW_MPT, 0xF},       {WRITE_MTT, 0x11},
      {MAP_EQ, 0x12},          {SW2HW_EQ, 0x13},       {HW2SW_EQ, 0x14},
      {SW2HW_CQ, 0x16},        {HW2SW_CQ, 0x17},       {RESIZE_CQ, 0x2C},
      {RST2INIT_QPEE, 0x19},   {INIT2RTR_QPEE, 0x1A},  {RTR2RTS_QPEE, 0x1B},
      {RTS2RTS_QPEE, 0x1C},    {SQERR2RTS_QPEE, 0x1D}, {TO_ERR_QPEE, 0x1E},
      {RTS2SQD_QPEE, 0x1F},    {SQD2SQD_QPEE, 0x38},   {SQD2RTS_QPEE, 0x20},
      {ERR2RST_QPEE, 0x21},    {INIT2INIT_QPEE, 0x2D}, {QUERY_QP, 0x22},
      {CONF_SPECIAL_QP, 0x23}, {MAD_IFC, 0x24},        {NOP, 0x31},
  };
  EXPECT_EQ(codes.size(), 30u);
  for (const auto& [opcode, code] : codes) {
    EXPECT_EQ(static_cast<int>(opcode), code) << to_string(opcode);
  }
}

TEST(JingzhaoCodes, OfSyndromesAreThoseOfTable333) {
  using enum syndrome;
  const std::map<syndrome, int> codes{
      {LOCAL_LENGTH_ERR, 0x01},   {LOCAL_QP_OP_ERR, 0x02},    {LOCAL_EEC_OP_ERR, 0x03},
      {LOCAL_PROT_ERR, 0x04},     {WR_FLUSH_ERR, 0x05},       {MW_BIND_ERR, 0x06},
      {BAD_RESP_ERR, 0x10},       {LOCAL_ACCESS_ERR, 0x11},   {REMOTE_INVAL_REQ_ERR, 0x12},
      {REMOTE_ACCESS_ERR, 0x13},  {REMOTE_OP_ERR, 0x14},      {RETRY_EXC_ERR, 0x15},
      {RNR_RETRY_EXC_ERR, 0x16},  {LOCAL_RDD_VIOL_ERR, 0x20}, {REMOTE_INVAL_RD_REQ_ERR, 0x21},
      {REMOTE_ABORTED_ERR, 0x22}, {INVAL_EECN_ERR, 0x23},     {INVAL_EEC_STATE_ERR, 0x24},
  };
  EXPECT_EQ(codes.size(), 18u);
  for (const auto& [one, code] : codes) EXPECT_EQ(static_cast<int>(one), code) << to_string(one);
}

// Tables 3-1-5, 3-2-25, 3-2-42, 3-3-3 (work requests).
TEST(JingzhaoCodes, OfStatesEventsAndOpcodesAreThoseOfTheirTables) {
  const auto expect = [](auto code, int value) {
    EXPECT_EQ(static_cast<int>(code), value) << to_string(code);
  };
  expect(hcr_status::OK, 0);
  expect(hcr_status::BAD_OP, 2);
  expect(hcr_status::BAD_PARAM, 3);
  expect(hcr_status::BAD_SYS_STATE, 4);
  expect(hcr_status::BAD_NVMEM, 5);
  expect(event_type::COMM_EST, 0x02);
  expect(event_type::SQ_DRAINED, 0x03);
  expect(event_type::CQ_ERROR, 0x04);
  expect(event_type::WQ_CATAS_ERROR, 0x05);
  expect(event_type::LOCAL_CATAS_ERROR, 0x08);
  expect(event_type::PORT_CHANGE, 0x09);
  expect(event_type::WQ_INVAL_REQ_ERROR, 0x10);
  expect(event_type::WQ_ACCESS_ERROR, 0x11);
  expect(qp_state::RST, 0);
  expect(qp_state::INIT, 1);
  expect(qp_state::RTR, 2);
  expect(qp_state::RTS, 3);
  expect(qp_state::SQE, 4);
  expect(qp_state::SQD, 5);
  expect(qp_state::ERR, 6);
  expect(qp_type::RC, 0);
  expect(qp_type::UC, 1);
  expect(qp_type::RD, 2);
  expect(qp_type::UD, 3);
  expect(wqe_opcode::NOP, 0x00);
  expect(wqe_opcode::RDMA_WRITE, 0x08);
  expect(wqe_opcode::RDMA_WRITE_IMM, 0x09);
  expect(wqe_opcode::SEND, 0x0A);
  expect(wqe_opcode::SEND_IMM, 0x0B);
  expect(wqe_opcode::RDMA_READ, 0x10);
  expect(wqe_opcode::ATOMIC_CS, 0x11);
  expect(wqe_opcode::ATOMIC_FA, 0x12);
  expect(wqe_opcode::BIND_MW, 0x18);
  expect(wqe_opcode::INVALID, 0xFF);
  expect(icm_group::QUEUE_CONTEXTS, 1);
  expect(icm_group::MEMORY_TABLES, 2);
  expect(owner::SW, 0);
  expect(owner::HW, 1);
}

TEST(JingzhaoCodes, OfAttributesAreTheBitsOfTableA13) {
  using enum infiniband::QpAttribute;
  // In the order of the table: the number of each is its bit.
  constexpr infiniband::QpAttribute kBits[] = {
      kState,
      kCurrentState,
      kSqDrainNotify,
      kAccessFlags,
      kPkeyIndex,
      kPort,
      kQkey,
      kAddressVector,
      kPathMtu,
      kTimeout,
      kRetryCount,
      kRnrRetry,
      kRqPsn,
      kMaxRdAtomic,
      kAlternatePath,
      kMinRnrTimer,
      kSqPsn,
      kMaxDestRdAtomic,
      kPathMigrationState,
      kCapacity,
      kDestinationQpn,
  };
  for (std::size_t bit = 0; bit != std::size(kBits); ++bit) {
    EXPECT_EQ(infiniband::QpAttributeSet{kBits[bit]}.bits(), 1u << bit) << bit;
  }
}

}  // namespace
}  // namespace softhca::spec::jingzhao
