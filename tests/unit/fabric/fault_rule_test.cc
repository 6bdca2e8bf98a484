// Network rules as text.
#include "fabric/fault_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/fault_table.h"
#include "fabric/fault_values.h"
#include "wire/opcode.h"

namespace softhca::fabric {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

FaultRule rule_of(std::string_view text) {
  const auto rule = parse_fault(text);
  EXPECT_TRUE(rule) << text << ": " << (rule ? "" : rule.error().message);
  return rule.value_or(FaultRule{});
}

std::string error_of(std::string_view text) {
  const auto rule = parse_fault(text);
  EXPECT_FALSE(rule) << text;
  return rule ? "" : rule.error().message;
}

TEST(NetworkRule, EachTextParsesToItself) {
  for (const auto* const text :
       {"port=*,do=lose", "port=connectx0,direction=rx,qp=0x112,opcode=read-response,nth=3,do=lose",
        "port=a,opcode=ack,from=02:00:00:00:00:01,to=10.0.0.2,for=2ms,do=lose",
        "port=a,from=fe80::1,to=7,probability=0.25,seed=9,do=duplicate",
        "port=a,kind=arp,every=2,do=reorder,distance=4", "port=a,do=delay,time=3ms,jitter=500us",
        "port=a,direction=both,do=corrupt,part=icrc", "port=a,kind=ip,do=mark-ecn,queue=64K",
        "port=a,do=limit,rate=100mbit,queue=1500", "port=a,opcode=RC_SEND_ONLY,do=pause,time=1s",
        "port=a,do=link-down", "port=a,do=link-down,time=10ms,period=1s"}) {
    EXPECT_EQ(to_text(rule_of(text)), text);
  }
}

TEST(NetworkRule, ValuesMeanWhatTheySay) {
  const auto rule = rule_of("port=a,do=limit,rate=2mbit,queue=3K,for=5us,qp=18,nth=0x10");
  EXPECT_EQ(rule.action, FaultAction::kLimit);
  EXPECT_EQ(rule.rate, 2'000'000u);
  EXPECT_EQ(rule.queue, 3072u);
  EXPECT_EQ(rule.window, 5us);
  EXPECT_EQ(rule.qp, 18u);
  EXPECT_EQ(rule.turns.nth, 16u);
  EXPECT_EQ(rule.direction, Direction::kTx);
  EXPECT_EQ(rule_of("port=a,to=10.1.2.3,do=lose").to,
            FrameAddress(wire::Gid::from_ipv4(10, 1, 2, 3)));
  EXPECT_EQ(rule_of("port=a,to=::ffff:10.1.2.3,do=lose").to,
            FrameAddress(wire::Gid::from_ipv4(10, 1, 2, 3)));
}

TEST(NetworkRule, AGroupHasTheOpcodesOfAllServices) {
  const auto acks = find_opcodes("ack");
  ASSERT_TRUE(acks);
  EXPECT_TRUE((*acks)[0x11]);  // RC
  EXPECT_TRUE((*acks)[0xb1]);  // XRC
  EXPECT_FALSE((*acks)[0x12]);
  EXPECT_EQ(find_opcodes("RC_ACKNOWLEDGE")->count(), 1u);
  EXPECT_FALSE(find_opcodes("RD_SEND_ONLY"));
}

TEST(NetworkRule, AWrongTextSaysWhatIsWrong) {
  EXPECT_THAT(error_of("do=lose"), HasSubstr("port= is missing"));
  EXPECT_THAT(error_of("port=,do=lose"), HasSubstr("port= is empty"));
  EXPECT_THAT(error_of("port=a"), HasSubstr("do= is missing"));
  EXPECT_THAT(error_of("port=a,do=loose"), HasSubstr("(lose?)"));
  EXPECT_THAT(error_of("port=a,direktion=rx,do=lose"), HasSubstr("(direction?)"));
  EXPECT_THAT(error_of("port=a,direction=up,do=lose"),
              HasSubstr("direction=up: no such direction"));
  EXPECT_THAT(error_of("port=a,qp=0x1000000,do=lose"), HasSubstr("qp=0x1000000"));
  EXPECT_THAT(error_of("port=a,opcode=ac,do=lose"), HasSubstr("IBTA 9.2.1"));
  EXPECT_THAT(error_of("port=a,from=10.0.0,do=lose"), HasSubstr("from=10.0.0: want a MAC"));
  EXPECT_THAT(error_of("port=a,nth=1,every=2,do=lose"), HasSubstr("exclude"));
  for (const auto* const wrong : {"0", "1.5", "-1", "nan", "x", ""}) {
    EXPECT_THAT(error_of("port=a,probability=" + std::string(wrong) + ",do=lose"),
                HasSubstr("want a number above 0, at most 1"));
  }
}

TEST(NetworkRule, ArgumentsBelongToTheirActions) {
  EXPECT_THAT(error_of("port=a,do=lose,time=1ms"), HasSubstr("time= does not go with do=lose"));
  EXPECT_THAT(error_of("port=a,do=delay"), HasSubstr("do=delay needs time="));
  EXPECT_THAT(error_of("port=a,do=delay,time=0ms"), HasSubstr("time=0ms: want"));
  EXPECT_THAT(error_of("port=a,do=corrupt"), HasSubstr("needs part="));
  EXPECT_THAT(error_of("port=a,do=limit,rate=0mbit"), HasSubstr("rate=0mbit"));
  EXPECT_THAT(error_of("port=a,do=limit,rate=10"), HasSubstr("rate=10"));
  EXPECT_THAT(error_of("port=a,do=limit,rate=1gbit,queue=2000M"), HasSubstr("queue=2000M"));
  EXPECT_THAT(error_of("port=a,do=limit,rate=1gbit,queue=17M"), HasSubstr("at most 16M"));
  EXPECT_THAT(error_of("port=a,do=reorder,distance=0"), HasSubstr("distance=0"));
  EXPECT_THAT(error_of("port=a,do=link-down,period=1s"), HasSubstr("period= needs time="));
  EXPECT_THAT(error_of("port=a,do=link-down,time=1s,period=1s"), HasSubstr("not longer"));
  EXPECT_THAT(error_of("port=a,direction=rx,do=link-down"), HasSubstr("both directions"));
}

TEST(NetworkRule, OnlyALinkThatWaitsForNoFrameGoesDownAtOnce) {
  EXPECT_TRUE(rule_of("port=a,do=link-down,time=1s").acts_at_once());
  EXPECT_TRUE(rule_of("port=a,for=3s,do=link-down,time=1s,period=2s").acts_at_once());
  EXPECT_FALSE(rule_of("port=a,nth=1,do=link-down").acts_at_once());
  EXPECT_FALSE(rule_of("port=a,do=lose").acts_at_once());
}

TEST(NetworkRule, ItsFirstKeyDistinguishesItFromRulesOfDevices) {
  EXPECT_TRUE(is_network_rule("port=*,do=lose"));
  EXPECT_FALSE(is_network_rule("function=sdxi0,do=fail"));
  EXPECT_FALSE(is_network_rule("do=fail"));
}

TEST(NetworkRule, TheHelpAndThePageNameEveryAction) {
  for (const auto& kind : fault_kinds()) {
    EXPECT_THAT(network_fault_help(), HasSubstr(usage_of(kind)));
    EXPECT_THAT(network_faults_page(), HasSubstr("| `" + std::string(kind.name)));
  }
}

TEST(NetworkRule, LossIsAShorthand) {
  EXPECT_EQ(to_text(loss_rule(0.25, 7)), "port=*,probability=0.25,seed=7,do=lose");
  EXPECT_EQ(to_text(loss_rule(1, 1)), "port=*,do=lose");
}

}  // namespace
}  // namespace softhca::fabric
