// The ConnectX formats against the documents: known field positions, sizes, and properties that
// every structure must have. If a test fails, look at the layout file first.
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "spec/connectx/caps.h"
#include "spec/connectx/command.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/registers.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "spec/connectx/vport.h"
#include "spec/connectx/wqe.h"
#include "spec/structures.h"

namespace softhca::spec::connectx {
namespace {

/// Position of a field: byte offset of its word, top bit, low bit.
struct Place {
  std::size_t offset;
  unsigned hi;
  unsigned lo;
  bool operator==(const Place&) const = default;
};

void PrintTo(const Place& p, std::ostream* out) {
  *out << "0x" << std::hex << p.offset << std::dec << " [" << p.hi << ":" << p.lo << "]";
}

template <class Field>
constexpr Place place(Field) {
  return {Field::kOffset, Field::kHi, Field::kLo};
}

/// Byte offset of an embedded structure or of uninterpreted bytes.
template <class Member>
constexpr std::size_t at(Member) {
  return Member::kOffset;
}

// --- positions ---

TEST(ConnectxLayout, InitializationSegmentHasItsControlsWhereTheDriverPolls) {
  EXPECT_EQ(place(init_segment::cmd_interface_rev), (Place{0x4, 31, 16}));
  EXPECT_EQ(place(init_segment::cmdq_phy_addr), (Place{0x10, 63, 12}));
  EXPECT_EQ(place(init_segment::nic_interface), (Place{0x14, 10, 8}));
  EXPECT_EQ(place(init_segment::command_doorbell_vector), (Place{0x18, 31, 0}));
  EXPECT_EQ(place(init_segment::initializing), (Place{0x1fc, 31, 31}));
  EXPECT_EQ(place(init_segment::internal_timer), (Place{0x1000, 63, 0}));
  EXPECT_EQ(place(init_segment::health_counter), (Place{0x1010, 23, 0}));
  EXPECT_EQ(at(init_segment::health_buffer) + place(health_buffer::fw_version_major).offset,
            0x230u);
  EXPECT_EQ(at(init_segment::health_buffer) + place(health_buffer::ext_synd).offset + 2, 0x23eu);
}

TEST(ConnectxLayout, UarPageHasItsDoorbellsAt20_40_48And800) {
  EXPECT_EQ(place(uar_page::cq_n), (Place{0x24, 23, 0}));
  EXPECT_EQ(place(uar_page::eq_arm_consumer_index), (Place{0x40, 23, 0}));
  EXPECT_EQ(place(uar_page::eq_eqn), (Place{0x48, 31, 24}));
  EXPECT_EQ(at(uar_page::db_blueflame_buffer0_even), 0x800u);
  EXPECT_EQ(uar_page::kSize, 0x1000u);
}

TEST(ConnectxLayout, CommandEntryIs64BytesWithOwnershipInItsLastBit) {
  EXPECT_EQ(command_queue_entry::kSize, 64u);
  EXPECT_EQ(place(command_queue_entry::input_mailbox_pointer), (Place{0x8, 63, 9}));
  EXPECT_EQ(at(command_queue_entry::command_output_inline_data), 0x20u);
  EXPECT_EQ(place(command_queue_entry::output_length), (Place{0x38, 31, 0}));
  EXPECT_EQ(place(command_queue_entry::token), (Place{0x3c, 31, 24}));
  EXPECT_EQ(place(command_queue_entry::status), (Place{0x3c, 7, 1}));
  EXPECT_EQ(place(command_queue_entry::ownership), (Place{0x3c, 0, 0}));
}

TEST(ConnectxLayout, MailboxBlockIs576BytesWithItsNextPointerAt230) {
  EXPECT_EQ(command_mailbox_block::kSize, 576u);
  EXPECT_EQ(place(command_mailbox_block::next_pointer), (Place{0x230, 63, 10}));
  EXPECT_EQ(place(command_mailbox_block::token), (Place{0x23c, 23, 16}));
}

TEST(ConnectxLayout, GeneralCapabilitiesFillTheCapabilityArea) {
  EXPECT_EQ(hca_cap::kSize, 4096u);
  EXPECT_EQ(query_hca_cap_out::capability.kSize, 4096u);
  EXPECT_EQ(place(hca_cap::log_max_qp), (Place{0x10, 4, 0}));
  EXPECT_EQ(place(hca_cap::port_type), (Place{0x34, 9, 8}));
  EXPECT_EQ(place(hca_cap::umr_modify_entity_size_disabled), (Place{0x40, 24, 24}));
  EXPECT_EQ(place(hca_cap::xrc), (Place{0x44, 3, 3}));
  EXPECT_EQ(place(hca_cap::log_bf_reg_size), (Place{0x4c, 20, 16}));
  EXPECT_EQ(place(hca_cap::max_wqe_sz_sq), (Place{0x50, 15, 0}));
  EXPECT_EQ(place(hca_cap::device_frequency_khz), (Place{0x9c, 31, 0}));
}

TEST(ConnectxLayout, NicReceiveTableCapabilitiesStartAt40) {
  EXPECT_EQ(at(flow_table_nic_cap::flow_table_properties_nic_receive), 0x40u);
  EXPECT_EQ(place(flow_table_properties::max_ft_level), (Place{0x4, 7, 0}));
  EXPECT_EQ(at(flow_table_properties::ft_field_support), 0x20u);
  EXPECT_EQ(place(flow_table_fields_supported::outer_ip_version), (Place{0x0, 28, 28}));
}

TEST(ConnectxLayout, RoceAndAtomicCapabilities) {
  EXPECT_EQ(place(roce_cap::l3_type), (Place{0x10, 19, 16}));
  EXPECT_EQ(place(roce_cap::roce_address_table_size), (Place{0x1c, 15, 0}));
  EXPECT_EQ(place(atomic_cap::atomic_operations), (Place{0x10, 15, 0}));
}

TEST(ConnectxLayout, QpContextIs232BytesWithItsNumbersWhereTheDriverWritesThem) {
  EXPECT_EQ(qpc::kSize, 232u);
  EXPECT_EQ(place(qpc::state), (Place{0x0, 31, 28}));
  EXPECT_EQ(place(qpc::pd), (Place{0x4, 23, 0}));
  EXPECT_EQ(place(qpc::log_sq_size), (Place{0x8, 14, 11}));
  EXPECT_EQ(at(qpc::primary_address_path), 0x18u);
  EXPECT_EQ(at(qpc::secondary_address_path), 0x44u);
  EXPECT_EQ(place(qpc::next_rcv_psn), (Place{0x94, 23, 0}));
  EXPECT_EQ(place(qpc::dbr_addr), (Place{0xa0, 63, 0}));
  EXPECT_EQ(place(qpc::srqn_rmpn_xrqn), (Place{0xac, 23, 0}));
}

TEST(ConnectxLayout, CreateQpHasItsContextAt18AndItsPagesAt110) {
  EXPECT_EQ(at(create_qp_in::qpc), 0x18u);
  EXPECT_EQ(create_qp_in::pas_offset, 0x110u);
  EXPECT_EQ(create_qp_in::pas_size, 8u);
  EXPECT_EQ(at(query_qp_out::qpc), 0x18u);
}

TEST(ConnectxLayout, AddressPathIs44BytesEndingInTheMac) {
  EXPECT_EQ(ads::kSize, 44u);
  EXPECT_EQ(place(ads::src_addr_index), (Place{0x8, 23, 16}));
  EXPECT_EQ(place(ads::udp_sport), (Place{0x20, 15, 0}));
  EXPECT_EQ(at(ads::rmac), 0x26u);
}

TEST(ConnectxLayout, QueueContexts) {
  EXPECT_EQ(place(eq_context::intr), (Place{0x14, 11, 0}));
  EXPECT_EQ(at(create_eq_in::event_bitmask), 0x58u);
  EXPECT_EQ(place(cq_context::cqe_sz), (Place{0x0, 23, 21}));
  EXPECT_EQ(place(cq_context::dbr_addr), (Place{0x38, 63, 0}));
  EXPECT_EQ(at(rq_context::wq), 0x30u);
  EXPECT_EQ(place(wq::log_wq_stride), (Place{0x20, 19, 16}));
  EXPECT_EQ(place(sq_context::tis_num), (Place{0x2c, 23, 0}));
  EXPECT_EQ(place(rqt_context::rqt_actual_size), (Place{0x18, 15, 0}));
  EXPECT_EQ(place(xrc_srq_context::wqe_cnt), (Place{0x1c, 15, 0}));
}

TEST(ConnectxLayout, TirContext) {
  EXPECT_EQ(place(tir_context::inline_rqn), (Place{0x1c, 23, 0}));
  EXPECT_EQ(place(tir_context::rx_hash_fn), (Place{0x24, 31, 28}));
  EXPECT_EQ(at(tir_context::rx_hash_toeplitz_key), 0x28u);
  EXPECT_EQ(tir_context::rx_hash_toeplitz_key.kSize, 40u);
}

TEST(ConnectxLayout, MemoryKeyContext) {
  EXPECT_EQ(place(mkey_context::free), (Place{0x0, 30, 30}));
  EXPECT_EQ(place(mkey_context::access_mode), (Place{0x0, 9, 8}));
  EXPECT_EQ(place(mkey_context::start_addr), (Place{0x10, 63, 0}));
  EXPECT_EQ(place(mkey_context::log_page_size), (Place{0x38, 5, 0}));
  EXPECT_EQ(place(create_mkey_in::translations_octword_actual_size), (Place{0x60, 31, 0}));
}

TEST(ConnectxLayout, SendWqe) {
  EXPECT_EQ(place(wqe_ctrl_segment::wqe_index), (Place{0x0, 23, 8}));
  EXPECT_EQ(place(wqe_ctrl_segment::ce), (Place{0x8, 3, 2}));
  EXPECT_EQ(wqe_datagram_segment::kSize, 48u);
  EXPECT_EQ(at(wqe_datagram_segment::rmac), 20u);
  EXPECT_EQ(place(wqe_datagram_segment::src_addr_index), (Place{28, 27, 20}));
  EXPECT_EQ(place(wqe_eth_segment::inline_header_size), (Place{0xc, 25, 16}));
  EXPECT_EQ(wqe_umr_ctrl_segment::mkey_ctx_bit_mask.kOffset, 0x8u);
  EXPECT_EQ(place(umr_mkey_mask::free), (Place{0x4, 29, 29}));
}

TEST(ConnectxLayout, CompletionsEndInOpcodeAndOwner) {
  EXPECT_EQ(cqe64::kSize, 64u);
  EXPECT_EQ(place(cqe64::opcode), (Place{0x3c, 7, 4}));
  EXPECT_EQ(place(cqe64::owner), (Place{0x3c, 0, 0}));
  EXPECT_EQ(place(cqe64::checksum), (Place{0x14, 31, 16}));
  EXPECT_EQ(place(cqe64_responder::byte_cnt), (Place{0x2c, 31, 0}));
  EXPECT_EQ(place(cqe64_requester::wqe_counter), (Place{0x3c, 31, 16}));
  EXPECT_EQ(place(cqe_error::syndrome), (Place{0x34, 7, 0}));
  EXPECT_EQ(place(cqe_error::opcode), place(cqe64::opcode));
}

TEST(ConnectxLayout, EventsKeepTheQueueNumberAt38) {
  EXPECT_EQ(eqe::kSize, 64u);
  EXPECT_EQ(place(eqe::event_type), (Place{0x0, 23, 16}));
  EXPECT_EQ(at(eqe::event_data) + place(event_data_completion::cqn).offset, 0x38u);
  EXPECT_EQ(at(eqe::event_data) + place(event_data_qp_srq::type).offset, 0x34u);
  EXPECT_EQ(at(eqe::event_data) + place(event_data_page_request::num_pages).offset, 0x24u);
  EXPECT_EQ(eqe::event_data.kSize, event_data_completion::kSize);
}

TEST(ConnectxLayout, FlowTableEntry) {
  EXPECT_EQ(place(set_flow_table_entry_in::flow_index), (Place{0x20, 31, 0}));
  EXPECT_EQ(at(set_flow_table_entry_in::flow_context), 0x40u);
  EXPECT_EQ(at(flow_context::match_value), 0x40u);
  EXPECT_EQ(flow_context::destination_offset, 0x300u);
  EXPECT_EQ(place(dest_format::destination_type), (Place{0x0, 31, 24}));
  EXPECT_EQ(fte_match_param::kSize, 512u);
  EXPECT_EQ(at(fte_match_set_lyr_2_4::dmac), 0x8u);
  EXPECT_EQ(place(fte_match_set_lyr_2_4::ip_version), (Place{0x10, 12, 9}));
}

TEST(ConnectxLayout, VportAndRoceAddress) {
  EXPECT_EQ(at(modify_nic_vport_context_in::nic_vport_context), 0x100u);
  EXPECT_EQ(at(nic_vport_context::permanent_address), 0xf4u);
  EXPECT_EQ(place(nic_vport_context::roce_en), (Place{0x0, 0, 0}));
  EXPECT_EQ(place(modify_nic_vport_field_select::roce_en), (Place{0x0, 1, 1}));
  EXPECT_EQ(place(query_vport_state_out::state), (Place{0xc, 3, 0}));
  EXPECT_EQ(at(set_roce_address_in::roce_address), 0x10u);
  EXPECT_EQ(at(roce_address::source_mac), 0x12u);
  EXPECT_EQ(place(roce_address::roce_version), (Place{0x18, 7, 0}));
}

TEST(ConnectxLayout, Registers) {
  EXPECT_EQ(place(reg_ptys::eth_proto_oper), (Place{0x24, 31, 0}));
  EXPECT_EQ(place(reg_paos::admin_status), (Place{0x0, 11, 8}));
  EXPECT_EQ(place(reg_pmtu::oper_mtu), (Place{0xc, 31, 16}));
  EXPECT_EQ(place(reg_ppcnt::grp), (Place{0x0, 5, 0}));
  EXPECT_EQ(reg_node_desc::kSize, 64u);
  EXPECT_EQ(place(ppcnt_ieee_802_3::a_octets_received_ok), (Place{0x28, 63, 0}));
}

TEST(ConnectxLayout, QueryIssiOffersItsVersionsInTheLastDwordOf112Bytes) {
  EXPECT_EQ(query_issi_out::kSize, 112u);
  EXPECT_EQ(at(query_issi_out::supported_issi) + query_issi_out::supported_issi.kSize, 112u);
}

// --- codes ---

TEST(ConnectxCodes, NamesOfOpcodesAreTheDocumentsOwn) {
  EXPECT_EQ(static_cast<int>(command_opcode::CREATE_QP), 0x500);
  EXPECT_EQ(to_string(command_opcode::SET_FLOW_TABLE_ENTRY), "SET_FLOW_TABLE_ENTRY");
  EXPECT_EQ(static_cast<int>(command_opcode::QP_2RST), 0x50a);
  EXPECT_EQ(static_cast<int>(command_opcode::DEALLOC_TRANSPORT_DOMAIN), 0x817);
  EXPECT_EQ(to_string(static_cast<command_opcode>(0x1ff)), "");
  EXPECT_EQ(to_string(register_id::PTYS), "PTYS");
  EXPECT_EQ(static_cast<int>(register_id::HOST_ENDIANNESS), 0x7004);
}

// --- properties of every structure ---

using test::Structure;
using test::structures_of;

std::vector<Structure> all_structures() {
  return structures_of<caps_structures, command_structures, cq_structures, cqe_structures,
                       eq_structures, flow_table_structures, hca_structures,
                       init_segment_structures, mkey_structures, qp_structures,
                       raw_queues_structures, registers_structures, resources_structures,
                       srq_structures, vport_structures, wqe_structures>();
}

/// Number of the field's first bit, counted from the start of the structure as the document does.
unsigned first_bit(const util::FieldInfo& f) { return f.offset * 8 + (f.hi > 31 ? 63 : 31) - f.hi; }
unsigned end_bit(const util::FieldInfo& f) { return first_bit(f) + f.hi - f.lo + 1; }

/// True if other fields share these bits. Other bits, or the key, then decide which reading is
/// valid.
bool is_second_reading(const Structure& s, std::string_view field) {
  const std::set<std::pair<std::string_view, std::string_view>> second = {
      {"block_signature_format", "wire_block_selector"},
      {"block_signature_format", "w_crc"},
      {"block_signature_format", "w_crc_repeat"},
      {"block_signature_format", "w_crc_seed_zero"},
      {"block_signature_format", "m_crc"},
      {"block_signature_format", "m_crc_repeat"},
      {"block_signature_format", "m_crc_seed_zero"},
      {"wqe_umr_ctrl_segment", "bsf_octword_actual_size"},
      {"wqe_set_psv_segment", "guard"},
      {"wqe_set_psv_segment", "app_tag"}};
  return second.contains({s.name, field});
}

TEST(EveryConnectxStructure, HasFieldsThatDoNotOverlap) {
  for (const Structure& s : all_structures()) {
    std::vector<std::string_view> owner(s.size * 8);
    for (const auto& field : s.fields) {
      if (is_second_reading(s, field.name)) continue;
      ASSERT_LE(end_bit(field), owner.size()) << s.name << "." << field.name;
      for (unsigned bit = first_bit(field); bit < end_bit(field); ++bit) {
        ASSERT_EQ(owner[bit], "") << s.name << "." << field.name;
        owner[bit] = field.name;
      }
    }
  }
}

TEST(EveryConnectxStructure, SaysWhichSectionItComesFrom) {
  std::set<std::string_view> names;
  for (const Structure& s : all_structures()) {
    EXPECT_FALSE(s.section.empty()) << s.name;
    EXPECT_TRUE(names.insert(s.name).second) << s.name << " is declared twice";
  }
  EXPECT_GT(names.size(), 400u);
}

TEST(EveryConnectxCommand, StartsWithTheCommonHeader) {
  for (const Structure& s : all_structures()) {
    std::map<std::string_view, Place> places;
    for (const auto& f : s.fields) places[f.name] = Place{f.offset, f.hi, f.lo};
    if (s.name.ends_with("_in")) {
      EXPECT_EQ(places["opcode"], (Place{0x0, 31, 16})) << s.name;
      EXPECT_EQ(places["op_mod"], (Place{0x4, 15, 0})) << s.name;
      EXPECT_GE(s.size, 16u) << s.name;
    } else if (s.name.ends_with("_out")) {
      EXPECT_EQ(places["status"], (Place{0x0, 31, 24})) << s.name;
      EXPECT_EQ(places["syndrome"], (Place{0x4, 31, 0})) << s.name;
      EXPECT_GE(s.size, 16u) << s.name;
    }
  }
}

}  // namespace
}  // namespace softhca::spec::connectx
