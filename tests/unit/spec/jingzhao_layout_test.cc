// The JingZhao formats against the document, byte for byte. Each test writes a field and checks
// which bytes it sets.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "spec/jingzhao/command.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/cqe.h"
#include "spec/jingzhao/registers.h"
#include "spec/jingzhao/wqe.h"
#include "spec/structures.h"

namespace softhca::spec::jingzhao {
namespace {

using test::bytes_of;

TEST(JingzhaoRegisters, HcrIsLittleEndianWithTheHighDwordOfAParameterFirst) {
  EXPECT_EQ(bytes_of<hcr>(hcr::in_param_h, 0x11223344), "00=44 01=33 02=22 03=11");
  EXPECT_EQ(bytes_of<hcr>(hcr::in_param_l, 0x11223344), "04=44 05=33 06=22 07=11");
  EXPECT_EQ(bytes_of<hcr>(hcr::token), "16=ff 17=ff");
  EXPECT_EQ(bytes_of<hcr>(hcr::status), "1b=ff");
  EXPECT_EQ(bytes_of<hcr>(hcr::go), "1a=80");
  EXPECT_EQ(bytes_of<hcr>(hcr::e), "1a=40");
  EXPECT_EQ(bytes_of<hcr>(hcr::op_modifier, 0xab), "19=b0 1a=0a");
  EXPECT_EQ(bytes_of<hcr>(hcr::op, 0xffa), "18=fa 19=0f");
  EXPECT_EQ(hcr::kSize, 28u);
}

TEST(JingzhaoRegisters, ADoorbellHasItsWqeInItsFirstDwordAndTheQpInItsSecond) {
  EXPECT_EQ(bytes_of<uar_page>(uar_page::sq_head, 0x123456), "01=56 02=34 03=12");
  EXPECT_EQ(bytes_of<uar_page>(uar_page::f), "00=20");
  EXPECT_EQ(bytes_of<uar_page>(uar_page::opcode), "00=1f");
  EXPECT_EQ(bytes_of<uar_page>(uar_page::qpn, 0x123456), "05=56 06=34 07=12");
  EXPECT_EQ(bytes_of<uar_page>(uar_page::size0), "04=ff");
  EXPECT_EQ(bytes_of<uar_page>(uar_page::arm_cqn, 0x123456), "10=56 11=34 12=12");
  EXPECT_EQ(bytes_of<uar_page>(uar_page::arm_eqn), "20=ff");
}

TEST(JingzhaoMailboxes, QueryDevLimIsBigEndian) {
  using out = query_dev_lim_out;
  EXPECT_EQ(bytes_of<out>(out::reserved_qp), "00=0f");
  EXPECT_EQ(bytes_of<out>(out::reserved_cq), "01=0f");
  EXPECT_EQ(bytes_of<out>(out::reserved_eq), "02=0f");
  EXPECT_EQ(bytes_of<out>(out::reserved_mtt), "03=0f");
  EXPECT_EQ(bytes_of<out>(out::max_qp_sz, 0x1234), "08=12 09=34");
  EXPECT_EQ(bytes_of<out>(out::max_qps), "0c=1f");
  EXPECT_EQ(bytes_of<out>(out::max_eqs), "0e=07");
  EXPECT_EQ(bytes_of<out>(out::max_mpts), "0f=3f");
  EXPECT_EQ(bytes_of<out>(out::max_mtt_seg), "15=ff");
  EXPECT_EQ(bytes_of<out>(out::mpt_entry_sz), "1e=ff 1f=ff");
  EXPECT_EQ(bytes_of<out>(out::max_mtu), "21=f0");
  EXPECT_EQ(bytes_of<out>(out::num_ports), "23=0f");
  EXPECT_EQ(bytes_of<out>(out::max_icm_sz, 0x0102030405060708),
            "30=01 31=02 32=03 33=04 34=05 35=06 36=07 37=08");
  EXPECT_EQ(bytes_of<query_adapter_out>(query_adapter_out::board_id, 0xff), "1f=ff");
}

TEST(JingzhaoMailboxes, BasesOfInitHcaShareTheirLowByteWithTheSizeOfTheTable) {
  EXPECT_EQ(bytes_of<init_hca_in>(init_hca_in::qpc_base, 0x01020304050607),
            "08=01 09=02 0a=03 0b=04 0c=05 0d=06 0e=07");
  EXPECT_EQ(bytes_of<init_hca_in>(init_hca_in::log_num_qps), "0f=ff");
  EXPECT_EQ(bytes_of<init_hca_in>(init_hca_in::log_num_cqs), "17=ff");
  EXPECT_EQ(bytes_of<init_hca_in>(init_hca_in::log_num_eqs), "1f=ff");
  EXPECT_EQ(bytes_of<init_hca_in>(init_hca_in::log_mpt_sz), "37=ff");
  EXPECT_EQ(bytes_of<init_hca_in>(init_hca_in::mtt_base, 0xff), "3f=ff");
}

TEST(JingzhaoMailboxes, AChunkOfMapIcmCountsItsPagesInTheLowBitsOfTheirAddress) {
  EXPECT_EQ(bytes_of<icm_chunk>(icm_chunk::virt, 0xff), "07=ff");
  EXPECT_EQ(bytes_of<icm_chunk>(icm_chunk::page, 0x10), "0d=01");
  EXPECT_EQ(bytes_of<icm_chunk>(icm_chunk::page_num, 0x123), "0e=01 0f=23");
  EXPECT_EQ(bytes_of<write_mtt_in>(write_mtt_in::mtt_start_index, 0xff), "1f=ff");
  EXPECT_EQ(bytes_of<resize_cq_in>(resize_cq_in::logsize), "00=ff");
  EXPECT_EQ(bytes_of<resize_cq_in>(resize_cq_in::lkey, 0xff), "07=ff");
}

TEST(JingzhaoContexts, MptEntry) {
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::sw_owns), "00=f0");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::mio), "01=02");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::bind_enable), "02=80");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::physical), "02=02");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::region), "02=01");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::zero_based), "03=20");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::remote_atomic), "03=08");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::local_write), "03=01");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::key, 0x12345678), "08=12 09=34 0a=56 0b=78");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::start, 0xff), "17=ff");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::length, 0xff), "1f=ff");
  EXPECT_EQ(bytes_of<mpt_entry>(mpt_entry::mtt_seg, 0xff), "33=ff");
}

TEST(JingzhaoContexts, EventAndCompletionQueues) {
  EXPECT_EQ(bytes_of<eq_context>(eq_context::owner), "00=01");
  EXPECT_EQ(bytes_of<eq_context>(eq_context::state_armed), "02=01");
  EXPECT_EQ(bytes_of<eq_context>(eq_context::start, 0xff), "0b=ff");
  EXPECT_EQ(bytes_of<eq_context>(eq_context::logsize), "0c=ff");
  EXPECT_EQ(bytes_of<eq_context>(eq_context::intr), "17=ff");
  EXPECT_EQ(bytes_of<eq_context>(eq_context::lkey, 0xff), "1f=ff");
  EXPECT_EQ(bytes_of<eq_context>(eq_context::producer_index, 0xff), "2f=ff");
  EXPECT_EQ(bytes_of<cq_context>(cq_context::tr), "01=04");
  EXPECT_EQ(bytes_of<cq_context>(cq_context::comp_eqn, 0xff), "13=ff");
  EXPECT_EQ(bytes_of<cq_context>(cq_context::lkey, 0xff), "1b=ff");
  EXPECT_EQ(bytes_of<cq_context>(cq_context::cqn, 0xff), "2f=ff");
}

TEST(JingzhaoContexts, QpContext) {
  using qpc = qp_context;
  EXPECT_EQ(bytes_of<qpc>(qpc::opt_param_mask, 0xff), "03=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::state), "08=f0");
  EXPECT_EQ(bytes_of<qpc>(qpc::type), "09=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::mtu), "0c=e0");
  EXPECT_EQ(bytes_of<qpc>(qpc::msgmax), "0c=1f");
  EXPECT_EQ(bytes_of<qpc>(qpc::rq_entry_sz_log), "0d=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::remote_qpn, 0xff), "1b=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::port), "1c=07");
  EXPECT_EQ(bytes_of<qpc>(qpc::rnr_retry), "20=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::ackto), "24=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::dlid_dmac, 0x1234), "3c=12 3d=34");
  EXPECT_EQ(bytes_of<qpc>(qpc::slid_smac, 0x1234), "3e=12 3f=34");
  EXPECT_EQ(bytes_of<qpc>(qpc::smac_h, 0xff), "43=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::dmac_h, 0xff), "47=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::sip, 0xff), "4b=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::dip, 0xff), "4f=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::pd, 0xff), "5f=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::next_send_psn, 0xff), "6f=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::cqn_snd, 0xff), "73=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::snd_wqe_base_l, 0xff), "77=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::rnr_timer), "84=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::epsn, 0xff), "87=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::cqn_rcv, 0xff), "8f=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::rcv_wqe_len, 0xff), "97=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::qkey, 0xff), "9b=ff");
  EXPECT_EQ(bytes_of<qpc>(qpc::sq_wqe_counter, 0xff), "bf=ff");
  EXPECT_EQ(qpc::kSize, 192u);
}

TEST(JingzhaoWqes, UnitsAreLittleEndianWithTheLowDwordFirst) {
  EXPECT_EQ(bytes_of<next_unit>(next_unit::nop), "00=1f");
  EXPECT_EQ(bytes_of<next_unit>(next_unit::nda, 1), "00=40");
  EXPECT_EQ(bytes_of<next_unit>(next_unit::nds), "04=3f");
  EXPECT_EQ(bytes_of<next_unit>(next_unit::f), "04=40");
  EXPECT_EQ(bytes_of<next_unit>(next_unit::d), "04=80");
  EXPECT_EQ(bytes_of<next_unit>(next_unit::imm_data, 0xff), "0c=ff");
  EXPECT_EQ(bytes_of<raddr_unit>(raddr_unit::raddr, 0x0102030405060708),
            "00=08 01=07 02=06 03=05 04=04 05=03 06=02 07=01");
  EXPECT_EQ(bytes_of<raddr_unit>(raddr_unit::rkey, 0xff), "08=ff");
  EXPECT_EQ(bytes_of<atomic_unit>(atomic_unit::swap_add, 0xff), "00=ff");
  EXPECT_EQ(bytes_of<atomic_unit>(atomic_unit::cmp, 0xff), "08=ff");
  EXPECT_EQ(bytes_of<data_unit>(data_unit::addr, 0xff), "08=ff");
  EXPECT_EQ(bytes_of<data_unit>(data_unit::byte_cnt, 0xff), "00=ff");
  EXPECT_EQ(bytes_of<data_unit>(data_unit::is_inline), "03=80");
  EXPECT_EQ(bytes_of<inline_unit>(inline_unit::is_inline), "03=80");
  EXPECT_EQ(inline_unit::data_offset, 4u);
}

TEST(JingzhaoWqes, AUdUnitNamesBothAddressesAndThePeersQueuePair) {
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::dlid_dmac, 0x1234), "06=34 07=12");
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::slid_smac, 0x1234), "04=34 05=12");
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::smac_h, 0xff), "08=ff");
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::dmac_h, 0xff), "0c=ff");
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::sip, 0xff), "10=ff");
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::dip, 0xff), "14=ff");
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::dqpn, 0xff), "20=ff");
  EXPECT_EQ(bytes_of<ud_unit>(ud_unit::qkey, 0xff), "24=ff");
}

TEST(JingzhaoCqes, EndInOwnerDirectionAndOpcode) {
  EXPECT_EQ(bytes_of<cqe>(cqe::owner), "1f=80");
  EXPECT_EQ(bytes_of<cqe>(cqe::is_send), "1d=ff");
  EXPECT_EQ(bytes_of<cqe>(cqe::opcode), "1c=ff");
  EXPECT_EQ(bytes_of<cqe>(cqe::rqpn, 0xff), "08=ff");
  EXPECT_EQ(bytes_of<cqe>(cqe::rlid, 0x1234), "0e=34 0f=12");
  EXPECT_EQ(bytes_of<cqe>(cqe::imm, 0xff), "10=ff");
  EXPECT_EQ(bytes_of<cqe>(cqe::byte_cnt, 0xff), "14=ff");
  EXPECT_EQ(bytes_of<cqe>(cqe::wqe, 0xff), "18=ff");
  EXPECT_EQ(bytes_of<error_cqe>(error_cqe::syndrome), "10=ff");
  EXPECT_EQ(bytes_of<error_cqe>(error_cqe::vendor_err), "11=ff");
}

TEST(JingzhaoEqes, HaveTheirTypeInByte1AndTheirOwnerInTheLastByte) {
  EXPECT_EQ(bytes_of<eqe>(eqe::type), "01=ff");
  EXPECT_EQ(bytes_of<eqe>(eqe::subtype), "03=ff");
  EXPECT_EQ(bytes_of<eqe>(eqe::number, 0x123456), "04=56 05=34 06=12");
  EXPECT_EQ(bytes_of<eqe>(eqe::owner), "1f=80");
  EXPECT_EQ(bytes_of<cmd_eqe>(cmd_eqe::token, 0x1234), "06=34 07=12");
  EXPECT_EQ(bytes_of<cmd_eqe>(cmd_eqe::status), "0f=ff");
  EXPECT_EQ(bytes_of<cq_error_eqe>(cq_error_eqe::syndrome), "0f=ff");
}

TEST(JingzhaoCodes, AreTheDocuments) {
  EXPECT_EQ(static_cast<int>(command_opcode::MAP_ICM), 0xffa);
  EXPECT_EQ(static_cast<int>(command_opcode::SQD2SQD_QPEE), 0x38);
  EXPECT_EQ(static_cast<int>(hcr_status::BAD_PARAM), 3);
  EXPECT_EQ(static_cast<int>(wqe_opcode::ATOMIC_FA), 0x12);
  EXPECT_EQ(static_cast<int>(syndrome::RNR_RETRY_EXC_ERR), 0x16);
  EXPECT_EQ(static_cast<int>(event_type::WQ_ACCESS_ERROR), 0x11);
  EXPECT_EQ(static_cast<int>(qp_state::SQE), 4);
  EXPECT_EQ(to_string(command_opcode::SW2HW_MPT), "SW2HW_MPT");
}

std::vector<test::Structure> all_structures() {
  return test::structures_of<registers_structures, command_structures, context_structures,
                             wqe_structures, cqe_structures>();
}

/// Covers little- and big-endian structures. The comparison is by dwords.
TEST(EveryJingzhaoStructure, HasFieldsThatDoNotOverlap) {
  for (const auto& s : all_structures()) {
    EXPECT_FALSE(s.section.empty()) << s.name;
    std::set<std::pair<std::size_t, unsigned>> taken;
    const bool big = s.section.starts_with("JingZhao 3.2");
    for (const auto& field : s.fields) {
      for (unsigned bit = field.lo; bit <= field.hi; ++bit) {
        const bool wide = field.hi > 31;
        const bool second = wide && (bit < 32) == big;
        const auto place = std::pair(field.offset + (second ? 4 : 0), bit % 32);
        EXPECT_TRUE(taken.insert(place).second) << s.name << "." << field.name;
      }
    }
  }
}

}  // namespace
}  // namespace softhca::spec::jingzhao
