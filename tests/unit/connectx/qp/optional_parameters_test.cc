// opt_param_mask of the commands that modify QPs (mlx5 driver interface 7.4): the bits that each
// command accepts, and the field that each bit selects. Drivers set a bit only for attributes that
// InfiniBand's tables call optional (IBTA 11.2.4.2).
#include <gtest/gtest.h>

#include <algorithm>

#include "connectx/qp/qp_transition.h"
#include "spec/connectx/qp.h"

namespace softhca::connectx::test {
namespace {

using spec::connectx::ads;
using spec::connectx::qpc;
using Opcode = spec::connectx::command_opcode;
using Bit = spec::connectx::qp_opt_param_bit;
using rdma::QpType;
using enum Bit;

constexpr Bit kBits[] = {ALT_ADDR_PATH, RRE,           RAE,       RWE,         PKEY_INDEX,
                         Q_KEY,         RNR_TIMEOUT,   SRA_MAX,   RRA_MAX,     PRIMARY_ADDR_PATH,
                         PM_STATE,      RETRY_COUNT,   RNR_RETRY, ACK_TIMEOUT, LAG_TX_AFF,
                         PRI_PORT,      SRQN,          CQN_RCV,   DC_HS,       DC_KEY,
                         PACING_INDEX,  COUNTER_SET_ID};

struct Row {
  Opcode opcode;
  std::initializer_list<QpType> types;
  std::initializer_list<Bit> bits;
};

constexpr auto kRc = QpType::kRc;
constexpr auto kUc = QpType::kUc;
constexpr auto kUd = QpType::kUd;
constexpr auto kInitiator = QpType::kXrcInitiator;
constexpr auto kTarget = QpType::kXrcTarget;
constexpr auto kDci = QpType::kDcInitiator;

// The driver's masks, by command and service. The driver adds COUNTER_SET_ID, SRQN and CQN_RCV
// itself.
const Row kRows[] = {
    {Opcode::RST2INIT_QP, {kRc, kUc, kUd, kInitiator, kTarget, kDci}, {}},
    {Opcode::INIT2INIT_QP,
     {kRc, kUc, kInitiator, kTarget},
     {RRE, RAE, RWE, PKEY_INDEX, PRI_PORT, COUNTER_SET_ID}},
    {Opcode::INIT2INIT_QP, {kUd}, {PKEY_INDEX, Q_KEY, PRI_PORT, COUNTER_SET_ID}},
    {Opcode::INIT2INIT_QP, {kDci}, {PKEY_INDEX, PRI_PORT, COUNTER_SET_ID}},
    {Opcode::INIT2RTR_QP,
     {kRc, kUc, kInitiator, kTarget},
     {ALT_ADDR_PATH, RRE, RAE, RWE, PKEY_INDEX, COUNTER_SET_ID}},
    {Opcode::INIT2RTR_QP, {kUd}, {PKEY_INDEX, Q_KEY, COUNTER_SET_ID}},
    {Opcode::INIT2RTR_QP, {kDci}, {PKEY_INDEX, COUNTER_SET_ID}},
    {Opcode::RTR2RTS_QP,
     {kRc, kTarget},
     {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE, RNR_TIMEOUT, COUNTER_SET_ID}},
    {Opcode::RTR2RTS_QP,
     {kUc, kInitiator},
     {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE, COUNTER_SET_ID}},
    {Opcode::RTR2RTS_QP, {kUd}, {Q_KEY, COUNTER_SET_ID}},
    {Opcode::RTR2RTS_QP, {kDci}, {COUNTER_SET_ID}},
    {Opcode::RTS2RTS_QP,
     {kRc, kTarget},
     {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE, RNR_TIMEOUT, SRQN, CQN_RCV, COUNTER_SET_ID}},
    {Opcode::RTS2RTS_QP,
     {kUc, kInitiator},
     {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE, SRQN, CQN_RCV, COUNTER_SET_ID}},
    {Opcode::RTS2RTS_QP, {kUd}, {Q_KEY, SRQN, CQN_RCV, COUNTER_SET_ID}},
    {Opcode::RTS2RTS_QP, {kDci}, {SRQN, CQN_RCV, COUNTER_SET_ID}},
    {Opcode::SQERR2RTS_QP, {kUd}, {Q_KEY}},
    {Opcode::SQERR2RTS_QP, {kUc}, {RRE, RAE, RWE}},
    {Opcode::SQD_RTS_QP, {kRc, kTarget}, {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE, RNR_TIMEOUT}},
    {Opcode::SQD_RTS_QP, {kUc, kInitiator}, {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE}},
    {Opcode::SQD_RTS_QP, {kUd}, {Q_KEY}},
    {Opcode::SQD_RTS_QP, {kDci}, {}},
    // Rows of early drivers.
    {Opcode::RTS2SQD_QP, {kRc, kUc, kUd, kInitiator, kTarget, kDci}, {}},
    {Opcode::SQD2RTS_QP, {kRc, kTarget}, {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE, RNR_TIMEOUT}},
    {Opcode::SQD2RTS_QP, {kUc, kInitiator}, {ALT_ADDR_PATH, RRE, RAE, RWE, PM_STATE}},
    {Opcode::SQD2RTS_QP, {kUd}, {Q_KEY}},
    {Opcode::SQD2RTS_QP, {kDci}, {}},
    {Opcode::SQD2SQD_QP,
     {kRc},
     {PRIMARY_ADDR_PATH, ALT_ADDR_PATH, RRE, RAE, RWE, PKEY_INDEX, PM_STATE, PRI_PORT, ACK_TIMEOUT,
      RETRY_COUNT, RNR_RETRY, SRA_MAX, RRA_MAX, RNR_TIMEOUT, COUNTER_SET_ID}},
    {Opcode::SQD2SQD_QP,
     {kUc},
     {PRIMARY_ADDR_PATH, ALT_ADDR_PATH, RRE, RAE, RWE, PKEY_INDEX, PM_STATE, COUNTER_SET_ID}},
    {Opcode::SQD2SQD_QP, {kUd}, {PKEY_INDEX, Q_KEY, COUNTER_SET_ID}},
    {Opcode::SQD2SQD_QP,
     {kInitiator},
     {PRIMARY_ADDR_PATH, ALT_ADDR_PATH, RRE, RAE, RWE, PKEY_INDEX, PM_STATE, PRI_PORT, ACK_TIMEOUT,
      RETRY_COUNT, RNR_RETRY, SRA_MAX, COUNTER_SET_ID}},
    {Opcode::SQD2SQD_QP,
     {kTarget},
     {PRIMARY_ADDR_PATH, ALT_ADDR_PATH, RRE, RAE, RWE, PKEY_INDEX, PM_STATE, PRI_PORT, ACK_TIMEOUT,
      RRA_MAX, RNR_TIMEOUT, COUNTER_SET_ID}},
    {Opcode::SQD2SQD_QP,
     {kDci},
     {PKEY_INDEX, PRI_PORT, ACK_TIMEOUT, RETRY_COUNT, RNR_RETRY, SRA_MAX, COUNTER_SET_ID}},
};

TEST(QpOptionalParameters, CountWhereTheDriverMaySendThemAndNowhereElse) {
  for (const auto& row : kRows) {
    const auto& command = find_qp_modify(row.opcode);
    for (const auto type : row.types) {
      const auto without = parts_taken(command, type, 0);
      for (const auto bit : kBits) {
        const auto with = parts_taken(command, type, 1u << static_cast<unsigned>(bit));
        const bool expected = std::ranges::find(row.bits, bit) != row.bits.end();
        EXPECT_EQ(with != without, expected)
            << std::hex << static_cast<unsigned>(row.opcode) << " type " << static_cast<int>(type)
            << " bit " << static_cast<unsigned>(bit);
      }
    }
  }
}

// Checks that the table above is complete.
TEST(QpOptionalParameters, EachCommandHasARowForEachServiceThatItMoves) {
  for (const auto opcode :
       {Opcode::RST2INIT_QP, Opcode::INIT2INIT_QP, Opcode::INIT2RTR_QP, Opcode::RTR2RTS_QP,
        Opcode::RTS2RTS_QP, Opcode::SQERR2RTS_QP, Opcode::SQD_RTS_QP, Opcode::RTS2SQD_QP,
        Opcode::SQD2RTS_QP, Opcode::SQD2SQD_QP}) {
    const auto& command = find_qp_modify(opcode);
    for (const auto type : {kRc, kUc, kUd, kInitiator, kTarget, kDci}) {
      const auto rows = std::ranges::count_if(kRows, [&](const Row& row) {
        return row.opcode == opcode && std::ranges::find(row.types, type) != row.types.end();
      });
      const bool moves =
          spec::infiniband::find_transition(type, command.from(), command.to()) != nullptr;
      EXPECT_EQ(rows, moves ? 1 : 0)
          << std::hex << static_cast<unsigned>(opcode) << " type " << static_cast<int>(type);
    }
  }
}

// Each bit applies its own field only, whatever else the context holds.
TEST(QpOptionalParameters, EachBitBringsItsFieldAndNoOther) {
  util::Struct<qpc> all;
  std::ranges::fill(all.bytes(), std::byte{0xFF});
  const auto is_empty = [](const util::Struct<qpc>& context) {
    return std::ranges::all_of(context.bytes(), [](std::byte b) { return b == std::byte{}; });
  };
  const auto only = [&](Bit bit, auto... fields) {
    util::Struct<qpc> got;
    merge_qp_context(got, all, part(bit));
    EXPECT_TRUE(((got.get(fields) != 0) && ...)) << static_cast<unsigned>(bit);
    (got.set(fields, 0), ...);
    EXPECT_TRUE(is_empty(got)) << static_cast<unsigned>(bit);
  };
  only(RRE, qpc::rre);
  only(RWE, qpc::rwe);
  only(RAE, qpc::rae, qpc::atomic_mode);
  only(Q_KEY, qpc::q_key);
  only(RNR_TIMEOUT, qpc::min_rnr_nak);
  only(SRA_MAX, qpc::log_sra_max);
  only(RRA_MAX, qpc::log_rra_max);
  only(RETRY_COUNT, qpc::retry_count);
  only(RNR_RETRY, qpc::rnr_retry);
  only(PM_STATE, qpc::pm_state);
  only(COUNTER_SET_ID, qpc::counter_set_id);
  only(SRQN, qpc::srqn_rmpn_xrqn);
  only(CQN_RCV, qpc::cqn_rcv);
  const auto only_of_path = [&](Bit bit, auto field) {
    util::Struct<qpc> got;
    merge_qp_context(got, all, part(bit));
    const util::MutableView<ads> path = got.sub(qpc::primary_address_path);
    EXPECT_NE(path.get(field), 0u) << static_cast<unsigned>(bit);
    path.set(field, 0);
    EXPECT_TRUE(is_empty(got)) << static_cast<unsigned>(bit);
  };
  only_of_path(PKEY_INDEX, ads::pkey_index);
  only_of_path(PRI_PORT, ads::vhca_port_num);
  only_of_path(ACK_TIMEOUT, ads::ack_timeout);
}

}  // namespace
}  // namespace softhca::connectx::test
