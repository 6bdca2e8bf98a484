// `softhca serve --fault` and `softhca fault` with rules of the network.
#include <gmock/gmock.h>

#include "served_test.h"

namespace softhca::server {
namespace {

using namespace std::chrono_literals;
using driver::WorkStatus;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct FaultyGuests {
  explicit FaultyGuests(const std::vector<std::string>& options)
      : server({"connectx,name=a", "connectx,name=b"}, options),
        a(server.socket(0), 1),
        b(server.socket(1), 2) {
    a.connect(b);
    b.connect(a);
  }

  ServedProgram server;
  HcaClient a, b;
};

TEST(ServeFaults, ARuleOfTheCommandLineActs) {
  FaultyGuests guests({"--fault=port=b,opcode=ack,do=lose"});
  EXPECT_EQ(guests.a.write(guests.b, 1000, 30s), WorkStatus::kTransportRetryExceeded);
  EXPECT_THAT(guests.server.ask("fault list"),
              StartsWith("ok\nn1: port=b,opcode=ack,do=lose: matched "));
}

TEST(ServeFaults, RulesComeAndGoWhileItRuns) {
  FaultyGuests guests({});
  EXPECT_EQ(guests.server.ask("fault add port=a,direction=rx,do=delay,time=2ms"),
            "ok\nn1: port=a,direction=rx,do=delay,time=2ms: matched 0, fired 0\n");
  EXPECT_EQ(guests.server.ask("fault add port=b,opcode=write,nth=2,do=corrupt,part=payload"),
            "ok\nn2: port=b,opcode=write,nth=2,do=corrupt,part=payload: matched 0, fired 0\n");
  const auto begin = util::monotonic_now();
  EXPECT_EQ(guests.a.write(guests.b, 10000, 30s), WorkStatus::kSuccess);
  EXPECT_GE(util::monotonic_now() - begin, 2ms);
  EXPECT_THAT(guests.server.ask("fault remove n2"), "ok\n");
  EXPECT_THAT(guests.server.ask("fault clear"), HasSubstr("n1: port=a"));
  EXPECT_EQ(guests.server.ask("fault list"), "ok\n");
  EXPECT_EQ(guests.a.write(guests.b, 10000, 30s), WorkStatus::kSuccess);
}

TEST(ServeFaults, ALinkThatIsDownIsInspected) {
  FaultyGuests guests({});
  const auto status = [&] {
    return std::string(guests.server.inspect()["a"]["port"]["oper_status"]);
  };
  EXPECT_EQ(status(), "UP");
  guests.server.ask("fault add port=a,do=link-down");
  EXPECT_EQ(status(), "DOWN");
  EXPECT_EQ(guests.a.write(guests.b, 1000, 30s), WorkStatus::kTransportRetryExceeded);
  guests.server.ask("fault clear");
  EXPECT_EQ(status(), "UP");
}

TEST(ServeFaults, AWrongRuleSaysWhatIsWrong) {
  ServedProgram server({"connectx,name=a", "sdxi,name=s"}, {});
  EXPECT_EQ(server.ask("fault add port=b,do=lose"), "error: there is no port 'b'\n");
  EXPECT_THAT(server.ask("fault add port=s,do=lose"), HasSubstr("there is no port 's'"));
  EXPECT_THAT(server.ask("fault add port=a,do=lose x"), HasSubstr("no blanks"));
  EXPECT_THAT(server.ask("fault remove n1"), HasSubstr("there is no rule 'n1'"));
  EXPECT_EQ(server.ask("fault add do=stall"), "ok\n1: do=stall: matched 0, fired 0\n");
  EXPECT_EQ(server.ask("fault add port=*,do=lose"), "ok\nn1: port=*,do=lose: matched 0, fired 0\n");
  EXPECT_EQ(server.ask("fault list"),
            "ok\n1: do=stall: matched 0, fired 0\nn1: port=*,do=lose: matched 0, fired 0\n");
  ServedProgram refused({"connectx"}, {"--fault=port=x,do=lose"});
  EXPECT_NE(refused.wait_end(), 0);
  EXPECT_THAT(refused.log(), HasSubstr("--fault port=x,do=lose: there is no port 'x'"));
  ServedProgram isolated({"connectx"}, {"--fault=port=*,do=lose", "--isolate"});
  EXPECT_NE(isolated.wait_end(), 0);
  EXPECT_THAT(isolated.log(), HasSubstr("not with --isolate"));
}

TEST(ServeFaults, AFileHasARuleOnEachLine) {
  ServedProgram server({"connectx,name=a"}, {"--fault=@/proc/self/does-not-exist"});
  EXPECT_NE(server.wait_end(), 0);
  EXPECT_THAT(server.log(), HasSubstr("does-not-exist"));
}

}  // namespace
}  // namespace softhca::server
