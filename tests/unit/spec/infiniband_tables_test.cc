// The tables that all HCAs share, printed as text: QP states, transitions with their attributes,
// and the opcodes that each service may post.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "spec/connectx/qp_commands.h"
#include "spec/infiniband/qp_states.h"
#include "spec/infiniband/services.h"
#include "spec/jingzhao/qp_commands.h"

namespace softhca::spec::infiniband {
namespace {

using enum QpState;
using enum QpAttribute;

constexpr QpType kTypes[] = {QpType::kRc,           QpType::kUc,        QpType::kUd,
                             QpType::kXrcInitiator, QpType::kXrcTarget, QpType::kDcInitiator};

/// One row for each state.
std::string print_transitions(QpType type) {
  std::string text;
  for (const auto& rules : kQpStateRules) {
    text += to_string(rules.state);
    text += " ->";
    for (const auto& t : qp_transition_table()) {
      if (t.from != rules.state || !t.types.has(type)) continue;
      text += ' ';
      text += to_string(t.to);
    }
    text += '\n';
  }
  return text;
}

/// One line for each opcode that a type may post.
std::string print_opcodes(QpType type) {
  constexpr std::string_view kNames[] = {"nop",   "send",       "send_imm",   "send_inv",
                                         "write", "write_imm",  "read",       "cas",
                                         "faa",   "masked_cas", "masked_faa", "local"};
  static_assert(std::size(kNames) == kSendOpcodes);
  std::string text;
  for (std::size_t i = 0; i != kSendOpcodes; ++i) {
    if (service_rules(type).may_post.has(SendOpcode(i))) text += std::string(kNames[i]) + " ";
  }
  return text;
}

TEST(QpTransitions, TableForRcReads) {
  EXPECT_EQ(print_transitions(QpType::kRc),
            "RESET -> RESET INIT\n"
            "INIT -> RESET INIT RTR ERR\n"
            "RTR -> RESET RTS ERR\n"
            "RTS -> RESET RTS SQD ERR\n"
            "SQE -> RESET ERR\n"
            "SQD -> RESET RTS SQD ERR\n"
            "ERR -> RESET ERR\n");
}

TEST(QpTransitions, OnlyUcAndUdReturnFromSqe) {
  for (const auto type : kTypes) {
    const bool returns = type == QpType::kUc || type == QpType::kUd;
    EXPECT_EQ(find_transition(type, kSqError, kRts) != nullptr, returns) << to_string(type);
    EXPECT_EQ(service_rules(type).keeps_receiving, returns) << "such a QP would never return";
  }
}

TEST(QpTransitions, TableIsSortedAndEachTypeHasOneRowForAPairOfStates) {
  const auto table = qp_transition_table();
  for (std::size_t i = 1; i < table.size(); ++i) {
    const auto order = [](const QpTransition& t) {
      return static_cast<int>(t.from) * 16 + static_cast<int>(t.to);
    };
    EXPECT_LE(order(table[i - 1]), order(table[i]));
  }
  for (const auto& t : table) {
    for (const auto type : kTypes) {
      if (!t.types.has(type)) continue;
      EXPECT_EQ(find_transition(type, t.from, t.to), &t);
    }
  }
}

TEST(QpTransitions, NoAttributeIsBothRequiredAndOptionalAndStateIsInNoList) {
  for (const auto& t : qp_transition_table()) {
    EXPECT_TRUE((t.required & t.optional).empty());
    EXPECT_FALSE((t.required | t.optional).has(QpAttribute::kState));
  }
}

TEST(QpTransitions, NothingIsTakenOnTheWayToResetAndToError) {
  for (const auto& t : qp_transition_table()) {
    if (t.to != kReset && t.to != kError) continue;
    EXPECT_TRUE(t.taken(QpAttributeSet::all()).empty());
  }
}

TEST(QpTransitions, RequiredAttributesAreTakenAlsoWithoutTheirBit) {
  const auto& t = *find_transition(QpType::kRc, kRtr, kRts);
  EXPECT_EQ(t.taken({}).bits(), t.required.bits());
  EXPECT_TRUE(t.taken({kAccessFlags}).has(kAccessFlags));
  EXPECT_FALSE(t.taken({kPathMtu}).has(kPathMtu)) << "fixed since RTR";
}

TEST(QpStates, AQpNeverSendsAndFlushesAtOnce) {
  for (std::size_t i = 0; i != kQpStates; ++i) {
    const auto& rules = state_rules(QpState(i));
    EXPECT_EQ(rules.state, QpState(i));
    EXPECT_FALSE(rules.finishes && rules.flushes_send);
    EXPECT_FALSE(rules.receives && rules.flushes_receive);
    EXPECT_TRUE(!rules.sends || rules.finishes);
  }
}

// IBTA 9.4 Table 36.
TEST(Services, MayPostWhatTheTableOfTransportFunctionsGrants) {
  EXPECT_EQ(print_opcodes(QpType::kRc),
            "nop send send_imm send_inv write write_imm read cas faa masked_cas masked_faa local ");
  EXPECT_EQ(print_opcodes(QpType::kUc), "nop send send_imm write write_imm local ");
  EXPECT_EQ(print_opcodes(QpType::kUd), "nop send send_imm local ");
  EXPECT_EQ(print_opcodes(QpType::kXrcInitiator), print_opcodes(QpType::kRc));
  EXPECT_EQ(print_opcodes(QpType::kXrcTarget), "");
  EXPECT_EQ(print_opcodes(QpType::kDcInitiator), print_opcodes(QpType::kRc));
  EXPECT_EQ(print_opcodes(QpType::kDcResponder), "");
}

TEST(Services, AServiceHasEitherAPeerOrADestinationInEachRequest) {
  for (const auto type : kTypes) {
    const auto& rules = service_rules(type);
    EXPECT_EQ(rules.type, type);
    EXPECT_NE(rules.connected, rules.datagram);
    EXPECT_EQ(rules.fixed_peer, rules.connected && type != QpType::kDcInitiator);
    EXPECT_TRUE(rules.requests || rules.responds);
    EXPECT_EQ(rules.names_srq, rules.packets == bth_service::XRC);
  }
}

TEST(Services, OpcodesOfAServiceAreThoseOfRcInItsClass) {
  EXPECT_EQ(opcode_of(bth_service::RC, bth_opcode::RC_ACKNOWLEDGE), bth_opcode::RC_ACKNOWLEDGE);
  EXPECT_EQ(opcode_of(bth_service::UC, bth_opcode::RC_RDMA_WRITE_LAST),
            bth_opcode::UC_RDMA_WRITE_LAST);
  EXPECT_EQ(opcode_of(bth_service::UD, bth_opcode::RC_SEND_ONLY), bth_opcode::UD_SEND_ONLY);
  EXPECT_EQ(opcode_of(bth_service::XRC, bth_opcode::RC_FETCH_ADD), bth_opcode::XRC_FETCH_ADD);
  EXPECT_EQ(opcode_of(bth_service::DC, bth_opcode::RC_FETCH_ADD), bth_opcode::DC_FETCH_ADD);
}

/// Each command leads to a state that some QP type may enter. Every transition has a command,
/// except those to RESET and ERR.
template <class Table>
void expect_transitions(const Table& table) {
  const auto any_type = [](QpState from, QpState to) {
    return std::ranges::any_of(
        kTypes, [&](QpType type) { return find_transition(type, from, to) != nullptr; });
  };
  for (const auto& command : table) {
    EXPECT_TRUE(any_type(command.from, command.to)) << to_string(command.opcode);
    EXPECT_EQ(&qp_command(table, command.opcode), &command);
  }
  for (const auto& row : qp_transition_table()) {
    if (row.to == kReset || row.to == kError) continue;
    EXPECT_TRUE(std::ranges::any_of(
        table,
        [&](const auto& command) { return command.from == row.from && command.to == row.to; }))
        << to_string(row.from) << to_string(row.to);
  }
}

TEST(QpCommands, LeadWhereTransitionsOfInfiniBandDo) {
  expect_transitions(connectx::kQpCommands);
  expect_transitions(jingzhao::kQpCommands);
}

TEST(QpCommands, DriversOfTodaySendNoEarlyOne) {
  using connectx::command_opcode;
  EXPECT_EQ(find_qp_command(connectx::kQpCommands, kSqDrain, kRts)->opcode,
            command_opcode::SQD_RTS_QP);
  EXPECT_EQ(find_qp_command(connectx::kQpCommands, kRts, kSqDrain), nullptr);
}

}  // namespace
}  // namespace softhca::spec::infiniband
