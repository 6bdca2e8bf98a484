// What the control socket answers.
#include "cli/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "connectx/device.h"
#include "fabric/switch.h"
#include "sdxi/device.h"
#include "sdxi/group.h"

namespace softhca::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ControlTest : public ::testing::Test {
 protected:
  std::string ask(std::string_view request) { return answer_control(targets_, request); }

  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> port_ = switch_.create_port("port");
  sdxi::FunctionGroup group_;
  sdxi::Device first_{{.name = "a"}, group_};
  sdxi::Device second_{{.name = "b"}, group_};
  connectx::Device nic_{{.name = "nic"}, *port_};
  ControlTargets targets_{{&first_, &second_, &nic_}, &group_.faults()};
};

TEST_F(ControlTest, InspectShowsAllFunctionsOrOne) {
  EXPECT_THAT(ask("inspect"), AllOf(StartsWith("ok\nsofthca:\n"), HasSubstr("\n  a:\n"),
                                    HasSubstr("\n  b:\n"), HasSubstr("\n  nic:\n")));
  EXPECT_THAT(ask("inspect b"), AllOf(StartsWith("ok\nb:\n"), Not(HasSubstr("nic:"))));
}

TEST_F(ControlTest, InspectAsJsonIsJson) {
  const auto all = ask("inspect --json");
  ASSERT_THAT(all, StartsWith("ok\n"));
  const auto tree = nlohmann::json::parse(all.substr(3));
  EXPECT_EQ(tree["b"]["function"]["sfunc"], second_.sfunc());
  EXPECT_EQ(tree["nic"]["card"]["mac"], "0x0");
  const auto one = nlohmann::json::parse(ask("inspect --json a").substr(3));
  EXPECT_EQ(one["function"]["state"], "GSV_STOP");
}

TEST_F(ControlTest, RulesAreAddedListedRemovedAndCleared) {
  EXPECT_EQ(ask("fault list"), "ok\n");
  EXPECT_EQ(ask("fault add function=a,nth=2,do=fail"),
            "ok\n1: function=a,nth=2,do=fail: matched 0, fired 0\n");
  ask("fault add do=stall");
  EXPECT_EQ(ask("fault remove 1"), "ok\n");
  EXPECT_EQ(ask("fault list"), "ok\n2: do=stall: matched 0, fired 0\n");
  EXPECT_TRUE(group_.faults().armed());
  EXPECT_EQ(ask("fault clear"), "ok\n2: do=stall: matched 0, fired 0\n");
  EXPECT_FALSE(group_.faults().armed());
}

TEST_F(ControlTest, MistakesAreAnsweredWithAReason) {
  EXPECT_EQ(ask("inspect c"), "error: there is no function 'c'\n");
  EXPECT_EQ(ask("inspect a b"), "error: inspect takes one function, or none for all\n");
  EXPECT_EQ(ask("fault add function=c,do=fail"), "error: there is no function 'c'\n");
  EXPECT_EQ(ask("fault add function=nic,do=fail"),
            "error: nic is no SDXI function: it has no faults\n");
  EXPECT_THAT(ask("fault add do=x"), StartsWith("error: do=x: no such action"));
  EXPECT_THAT(ask("fault remove 7"), StartsWith("error: there is no rule '7'"));
  EXPECT_THAT(ask("fault remove x"), StartsWith("error: there is no rule 'x'"));
  EXPECT_THAT(ask("fault remove"), StartsWith("error: there is no rule ''"));
  ask("fault add do=stall");
  EXPECT_THAT(ask("fault remove 1x"), StartsWith("error: there is no rule '1x'"));
  EXPECT_EQ(ask("fault list 1"), "error: fault list takes no argument\n");
  EXPECT_EQ(ask("fault clear 1"), "error: fault clear takes no argument\n");
  EXPECT_EQ(ask("fault list"), "ok\n1: do=stall: matched 0, fired 0\n");
  EXPECT_THAT(ask("fault"), StartsWith("error: fault takes"));
  EXPECT_THAT(ask(""), StartsWith("error: a request is"));
  EXPECT_THAT(ask("shutdown"), StartsWith("error: a request is"));
  EXPECT_THAT(ask(std::string_view("fault\0add", 9)), StartsWith("error: "));
}

TEST_F(ControlTest, TheNumberOfRulesIsLimited) {
  for (std::size_t i = 0; i < sdxi::Faults::kMax; ++i) ask("fault add do=stall");
  EXPECT_THAT(ask("fault add do=stall"), StartsWith("error: there are 1024 rules"));
}

}  // namespace
}  // namespace softhca::cli
