// Fault rules as text.
#include "sdxi/fault_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softhca::sdxi {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto rule = parse_fault(text);
  return rule ? "accepted: " + to_text(*rule) : rule.error().message;
}

TEST(FaultRuleTest, ARuleNamesFunctionContextOperationTurnAndAction) {
  const auto rule =
      parse_fault("function=sdxi0,context=3,operation=DSC_DMAB_COPY,nth=5,do=fail,class=0x3100");
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->function, "sdxi0");
  EXPECT_EQ(rule->context, 3);
  ASSERT_NE(rule->operation, nullptr);
  EXPECT_EQ(rule->operation->name, "DSC_DMAB_COPY");
  EXPECT_EQ(rule->nth, 5u);
  EXPECT_EQ(rule->every, 0u);
  EXPECT_EQ(rule->action, FaultAction::kFail);
  EXPECT_EQ(rule->error_class, 0x3100);
}

TEST(FaultRuleTest, OmittedConditionsMatchEverything) {
  const auto rule = parse_fault("do=stall");
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->function, "");
  EXPECT_FALSE(rule->context);
  EXPECT_EQ(rule->operation, nullptr);
  EXPECT_EQ(rule->nth, 0u);
}

TEST(FaultRuleTest, TimesHaveUnits) {
  EXPECT_EQ(parse_fault("do=delay,time=50us")->delay, std::chrono::microseconds(50));
  EXPECT_EQ(parse_fault("time=20ms,do=delay")->delay, std::chrono::milliseconds(20));
  EXPECT_EQ(parse_fault("do=delay,time=3s")->delay, std::chrono::seconds(3));
}

TEST(FaultRuleTest, ARuleIsPrintedAsItIsRead) {
  for (const auto* text :
       {"function=sdxi0,context=3,operation=DSC_DMAB_COPY,nth=5,do=fail,class=0x3100",
        "every=10,do=delay,time=1500us", "do=delay,time=2s", "context=0,do=hang-soft-stop",
        "do=hang-stop", "do=stall", "do=bad-completion", "do=lose-completion",
        "operation=DSC_INTR,do=lose-interrupt"}) {
    const auto rule = parse_fault(text);
    ASSERT_TRUE(rule) << rule.error().message;
    EXPECT_EQ(to_text(*rule), text);
  }
}

TEST(FaultRuleTest, MistakesAreExplained) {
  EXPECT_THAT(error_of(""), HasSubstr("do= is missing"));
  EXPECT_THAT(error_of("context=1"), HasSubstr("do= is missing"));
  EXPECT_THAT(error_of("do=explode"), HasSubstr("do=explode: no such action"));
  EXPECT_THAT(error_of("fail"), HasSubstr("'fail': want key=value"));
  EXPECT_THAT(error_of("do=fail,color=red"), HasSubstr("unknown key 'color'"));
  EXPECT_THAT(error_of("do=fail,context=65536"), HasSubstr("0 to 65535"));
  EXPECT_THAT(error_of("do=fail,context=-1"), HasSubstr("0 to 65535"));
  EXPECT_THAT(error_of("do=fail,context="), HasSubstr("0 to 65535"));
  EXPECT_THAT(error_of("do=fail,function="), HasSubstr("function= is empty"));
  EXPECT_THAT(error_of("do=fail,operation=COPY"), HasSubstr("no operation of this name"));
  EXPECT_THAT(error_of("do=fail,nth=0"), HasSubstr("nth=0: want 1 or more"));
  EXPECT_THAT(error_of("do=fail,nth=1,every=2"), HasSubstr("exclude each other"));
  EXPECT_THAT(error_of("do=delay"), HasSubstr("do=delay needs time="));
  EXPECT_THAT(error_of("do=delay,time=5"), HasSubstr("50us, 20ms or 3s"));
  EXPECT_THAT(error_of("do=delay,time=5h"), HasSubstr("50us, 20ms or 3s"));
  EXPECT_THAT(error_of("do=delay,time=4000000000s"), HasSubstr("50us, 20ms or 3s"));
  EXPECT_THAT(error_of("do=stall,time=5s"), HasSubstr("time= goes with do=delay only"));
  EXPECT_THAT(error_of("do=stall,class=1"), HasSubstr("class= goes with do=fail only"));
  EXPECT_THAT(error_of("do=fail,class=12345"), HasSubstr("4 hex digits"));
  EXPECT_THAT(error_of("do=hang-stop,operation=DSC_CXT_STOP"), HasSubstr("does not go with"));
  EXPECT_THAT(error_of("do=lose-interrupt,operation=DSC_DMAB_COPY"),
              HasSubstr("DSC_DMAB_COPY raises no interrupt"));
}

}  // namespace
}  // namespace softhca::sdxi
