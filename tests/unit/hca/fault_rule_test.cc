// Fault rules of HCAs as text, and their counting of events.
#include "hca/fault_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hca/faults.h"

namespace softhca::hca {
namespace {

using ::testing::HasSubstr;

const FaultNames& names() {
  static const FaultNames all{.requests = {{"SEND", 0xa}, {"RDMA_WRITE", 0x8}},
                              .commands = {{"CREATE_QP", 0x500}, {"CREATE_CQ", 0x400}},
                              .statuses = {{"OK", 0}, {"BAD_RESOURCE", 5}},
                              .syndromes = {{"FW_INTERNAL_ERR", 1}, {"HIGH_TEMP_ERR", 0x10}}};
  return all;
}

util::Result<FaultRule> parse(std::string_view text) { return parse_fault(text, names()); }

std::string error_of(std::string_view text) {
  const auto rule = parse(text);
  return rule ? "accepted: " + to_text(*rule, names()) : rule.error().message;
}

TEST(HcaFaultRule, ARuleNamesFunctionQueueRequestTurnAndAction) {
  const auto rule =
      parse("function=hca0,qp=0x41,opcode=RDMA_WRITE,nth=5,do=fail-request,status=REM_ACCESS_ERR");
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->function, "hca0");
  EXPECT_EQ(rule->qp, 0x41u);
  EXPECT_EQ(rule->cq, std::nullopt);
  EXPECT_EQ(rule->opcode, "RDMA_WRITE");
  EXPECT_EQ(rule->nth, 5u);
  EXPECT_EQ(rule->action, FaultAction::kFailRequest);
  EXPECT_EQ(rule->end, rdma::WorkStatus::kRemoteAccess);
  EXPECT_FALSE(rule->immediate());
}

TEST(HcaFaultRule, ARuleIsPrintedAsItIsRead) {
  for (const auto* text :
       {"function=hca0,qp=0x41,opcode=SEND,do=stall-send", "qp=0x0,every=3,do=stall-receive",
        "cq=0x12,nth=2,do=stall-cq", "do=lose-interrupt", "opcode=CREATE_QP,do=hang-command",
        "do=fail-request,status=RETRY_EXC_ERR",
        "opcode=CREATE_CQ,do=fail-command,status=BAD_RESOURCE,syndrome=0x1234",
        "do=fail-command,status=0x77", "do=internal-error",
        "nth=3,do=internal-error,syndrome=HIGH_TEMP_ERR", "do=remove"}) {
    EXPECT_EQ(error_of(text), std::string("accepted: ") + text);
  }
}

TEST(HcaFaultRule, TheActionMayStandAnywhere) {
  EXPECT_EQ(error_of("do=stall-cq,cq=18"), "accepted: cq=0x12,do=stall-cq");
}

TEST(HcaFaultRule, NumbersStandForNames) {
  EXPECT_EQ(error_of("do=hang-command,opcode=0x500"), "accepted: opcode=CREATE_QP,do=hang-command");
  EXPECT_EQ(error_of("do=internal-error,syndrome=7"), "accepted: do=internal-error,syndrome=0x7");
}

TEST(HcaFaultRule, MistakesAreExplained) {
  EXPECT_EQ(error_of(""), "do= is missing");
  EXPECT_THAT(error_of("do=stall-sent"), HasSubstr("no such action (stall-send?); a rule is ["));
  EXPECT_THAT(error_of("do=remove,opcod=CREATE_QP"), HasSubstr("unknown key 'opcod' (opcode?)"));
  EXPECT_EQ(error_of("qp=1,do=stall-cq"), "qp= does not go with do=stall-cq");
  EXPECT_EQ(error_of("cq=1,do=stall-send"), "cq= does not go with do=stall-send");
  EXPECT_EQ(error_of("opcode=SEND,do=stall-receive"), "opcode= does not go with do=stall-receive");
  EXPECT_EQ(error_of("do=stall-send,status=OK"), "status= does not go with do=stall-send");
  EXPECT_EQ(error_of("do=hang-command,syndrome=1"), "syndrome= does not go with do=hang-command");
  EXPECT_EQ(error_of("qp=0x1000000,do=stall-send"), "qp=0x1000000: want 0 to 16777215");
  EXPECT_EQ(error_of("opcode=RDMA_WRIT,do=stall-send"),
            "opcode=RDMA_WRIT: no such request (RDMA_WRITE?)");
  EXPECT_EQ(error_of("opcode=CREATE_PQ,do=hang-command"),
            "opcode=CREATE_PQ: no such command (CREATE_CQ?)");
  EXPECT_EQ(error_of("opcode=0x999,do=hang-command"), "opcode=0x999: want one that has a name");
  EXPECT_EQ(error_of("do=fail-request"), "do=fail-request needs status=");
  EXPECT_EQ(error_of("do=fail-command"), "do=fail-command needs status=");
  EXPECT_EQ(error_of("do=fail-command,status=OK"), "status=OK: want an error, by name");
  EXPECT_EQ(error_of("do=fail-request,status=99"), "status=99: want an error, by name");
  EXPECT_EQ(error_of("do=internal-error,syndrome=0x100"),
            "syndrome=0x100: want 1 to 0xff, or a name");
  EXPECT_EQ(error_of("do=remove,function="), "function= is empty");
}

TEST(HcaFaultRule, TheHelpNamesEachKind) {
  for (const auto& kind : fault_kinds()) {
    EXPECT_THAT(fault_help(), HasSubstr(std::string(kind.name)));
    EXPECT_THAT(fault_table(), HasSubstr("| `" + std::string(kind.name)));
  }
}

class HcaFaults : public testing::Test {
 protected:
  FaultId add(std::string_view text) { return faults_.add(*parse(text)); }
  bool stalls(std::uint32_t qp, std::string_view opcode = "SEND", std::string_view on = "a") {
    return faults_.take(on, {.action = FaultAction::kStallSend, .qp = qp, .opcode = opcode}) !=
           nullptr;
  }
  Faults faults_;
};

TEST_F(HcaFaults, ARuleActsOnWhatMeetsAllItsKeys) {
  const auto rule = add("function=a,qp=5,opcode=SEND,do=stall-send");
  EXPECT_FALSE(stalls(5, "SEND", "b"));
  EXPECT_FALSE(stalls(6));
  EXPECT_FALSE(stalls(5, "RDMA_WRITE"));
  EXPECT_EQ(faults_.find(rule)->matched, 0u);
  EXPECT_TRUE(stalls(5));
  EXPECT_EQ(faults_.find(rule)->matched, 1u);
  EXPECT_EQ(faults_.find(rule)->fired, 1u);
}

TEST_F(HcaFaults, NthCountsTheEventsThatMatch) {
  const auto rule = add("qp=5,nth=2,do=stall-send");
  EXPECT_FALSE(stalls(6));
  EXPECT_FALSE(stalls(5));
  EXPECT_TRUE(stalls(5));
  EXPECT_FALSE(stalls(5));
  EXPECT_EQ(faults_.find(rule)->matched, 3u);
  EXPECT_EQ(faults_.find(rule)->fired, 1u);
}

TEST_F(HcaFaults, AnImmediateRuleActsOnceOnEachFunction) {
  EXPECT_EQ(faults_.take_immediate("a", 0), nullptr);
  const auto rule = add("do=remove");
  ASSERT_NE(faults_.take_immediate("a", 0), nullptr);
  EXPECT_EQ(faults_.take_immediate("a", rule), nullptr);
  EXPECT_NE(faults_.take_immediate("b", 0), nullptr);
  EXPECT_EQ(faults_.find(rule)->fired, 2u);
  EXPECT_EQ(faults_.take("a", {.action = FaultAction::kRemove, .opcode = "CREATE_QP"}), nullptr);
}

TEST_F(HcaFaults, ANumberIsNotUsedTwice) {
  const auto first = add("do=stall-send");
  EXPECT_TRUE(faults_.remove(first));
  EXPECT_FALSE(faults_.remove(first));
  EXPECT_EQ(faults_.find(first), nullptr);
  EXPECT_NE(add("do=stall-send"), first);
  faults_.clear();
  EXPECT_TRUE(faults_.empty());
}

}  // namespace
}  // namespace softhca::hca
