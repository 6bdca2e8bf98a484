// The answers of the control socket.
#include "server/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "connectx/device.h"
#include "fabric/switch.h"
#include "jingzhao/device.h"
#include "os/unix_socket.h"
#include "sdxi/device.h"
#include "sdxi/group.h"
#include "vfio_user/served_function.h"

namespace softhca::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ControlTest : public ::testing::Test {
 protected:
  std::string ask(std::string_view request) {
    std::optional<std::string> answer;
    turns_ = 0;
    longest_ = 0;
    control_.answer(request, {.send = [&](auto text) { answer = std::move(text); }});
    for (; !answer; ++turns_) {
      loop_->run_once(util::Time{});
      longest_ = std::max(longest_, loop_->budget().done());
    }
    return *answer;
  }

  std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::create();
  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> port_ = switch_.create_port("port");
  sdxi::FunctionGroup group_;
  sdxi::Device first_{{.name = "a"}, group_};
  sdxi::Device second_{{.name = "b"}, group_};
  connectx::Device nic_{{.name = "nic"}, *port_};
  ServerControl control_{*loop_, {{&first_, &second_, &nic_}, &group_.faults()}};
  unsigned turns_ = 0;        ///< turns that the last answer took
  std::int64_t longest_ = 0;  ///< work of the longest of these turns
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

TEST_F(ControlTest, AnAnswerIsPutTogetherInTurnsOfBoundedWork) {
  for (std::size_t i = 0; i < sdxi::Faults::kMax; ++i) ask("fault add do=stall");
  const auto all = ask("inspect --json --count 256");
  EXPECT_GE(turns_, 20u);
  EXPECT_GT(longest_, 0) << "the loop knows of it";
  EXPECT_LE(longest_, 2 * ServerControl::kTurnWork);
  const auto tree = nlohmann::json::parse(all.substr(3));
  EXPECT_EQ(tree["b"]["faults_of_the_group"].size(), 256u);
  EXPECT_EQ(tree["b"]["faults_of_the_group_shown"], "256 of 1024, --from 0x100 for more");
}

TEST_F(ControlTest, EachKindIsShownInPages) {
  for (int i = 0; i < 40; ++i) ask("fault add do=stall");
  const auto page = [this](std::string_view options) {
    const auto text = ask("inspect --json a " + std::string(options));
    return nlohmann::json::parse(text.substr(3));
  };
  const auto first = page("");
  EXPECT_EQ(first["faults_of_the_group"].size(), 16u);
  EXPECT_EQ(first["faults_of_the_group_count"], 40);
  EXPECT_EQ(first["faults_of_the_group_shown"], "16 of 40, --from 0x10 for more");
  const auto last = page("--from 0x10 --count 30");
  ASSERT_EQ(last["faults_of_the_group"].size(), 24u);
  EXPECT_EQ(last["faults_of_the_group"][0]["number"], 17);
  EXPECT_EQ(last["faults_of_the_group_shown"], "24 of 40");
  EXPECT_EQ(page("--from 40")["faults_of_the_group"].size(), 0u);
  EXPECT_EQ(page("--count 40").contains("faults_of_the_group_shown"), false);
}

TEST_F(ControlTest, ARequestOfAClientThatLeftIsNotAnswered) {
  bool wanted = true, answered = false;
  control_.answer("inspect",
                  {.send = [&](auto) { answered = true; }, .is_wanted = [&] { return wanted; }});
  wanted = false;
  EXPECT_THAT(ask("inspect loop"), StartsWith("error: "));
  EXPECT_THAT(ask("inspect a"), StartsWith("ok\n")) << "others are served";
  for (int i = 0; i < 1000; ++i) loop_->run_once(util::Time{});
  EXPECT_FALSE(answered);
}

TEST_F(ControlTest, TheNumberOfAnswersInPreparationIsLimited) {
  std::size_t answers = 0, errors = 0;
  for (std::size_t i = 0; i < ServerControl::kAnswersMax + 3; ++i) {
    control_.answer("inspect a", {.send = [&](const std::string& text) {
                      ++(text.starts_with("ok\n") ? answers : errors);
                    }});
  }
  EXPECT_EQ(errors, 3u);
  while (answers + errors != ServerControl::kAnswersMax + 3) loop_->run_once(util::Time{});
  EXPECT_EQ(answers, ServerControl::kAnswersMax);
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
  for (const auto* count : {"0", "257", "x", "", "1x", "-1"}) {
    EXPECT_EQ(ask("inspect --count " + std::string(count)),
              "error: --count wants a number from 1 to 256\n");
  }
  EXPECT_EQ(ask("inspect --from"), "error: --from wants a number\n");
  EXPECT_EQ(ask("inspect --from 0x"), "error: --from wants a number\n");
  EXPECT_EQ(ask("fault add function=c,do=fail"), "error: there is no function 'c'\n");
  EXPECT_EQ(ask("fault add function=nic,do=fail"), "error: nic has no faults\n");
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

/// A server whose HCA takes rules, too.
class ControlWithHcas : public ControlTest {
 protected:
  ControlWithHcas() { nic_.faults().set_rules(hca_faults_); }
  std::string fault(std::string_view words) {
    std::string answer;
    both_.answer(std::string("fault ") + std::string(words),
                 {.send = [&](const auto& text) { answer = text; }});
    return answer;
  }
  hca::Faults hca_faults_;
  ServerControl both_{*loop_, {{&first_, &nic_}, &group_.faults(), &hca_faults_}};
};

TEST_F(ControlWithHcas, TheFunctionOfARuleDecidesWhoseItIs) {
  EXPECT_EQ(fault("add function=a,do=lose-interrupt"),
            "ok\n1: function=a,do=lose-interrupt: matched 0, fired 0\n");
  EXPECT_EQ(fault("add function=nic,do=lose-interrupt"),
            "ok\n2: function=nic,do=lose-interrupt: matched 0, fired 0\n");
  EXPECT_EQ(fault("add function=nic,do=internal-error"),
            "ok\n3: function=nic,do=internal-error: matched 1, fired 1\n");
  EXPECT_THAT(fault("add function=nic,do=bad-completion"),
              StartsWith("error: do=bad-completion: no"));
  EXPECT_THAT(fault("add function=a,do=remove"), StartsWith("error: do=remove: no such action"));
  EXPECT_EQ(group_.faults().rules().size(), 1u);
  EXPECT_EQ(hca_faults_.rules().size(), 2u);
}

TEST_F(ControlWithHcas, WithoutAFunctionTheActionDecides) {
  EXPECT_THAT(fault("add do=stall-send"), StartsWith("ok\n1: "));
  EXPECT_THAT(fault("add do=stall"), StartsWith("ok\n2: "));
  EXPECT_EQ(fault("add do=lose-interrupt"),
            "error: do=lose-interrupt needs function=: there are SDXI functions and HCAs\n");
  EXPECT_EQ(hca_faults_.rules().size(), 1u);
  EXPECT_EQ(group_.faults().rules().size(), 1u);
}

TEST_F(ControlWithHcas, RulesAreListedByNumberRemovedAndCleared) {
  fault("add do=stall-send");
  fault("add do=stall");
  fault("add do=remove");
  EXPECT_EQ(fault("list"),
            "ok\n1: do=stall-send: matched 0, fired 0\n2: do=stall: matched 0, fired 0\n"
            "3: do=remove: matched 1, fired 1\n");
  const auto reads_ones = [this] {
    std::array<std::byte, 2> vendor{};
    nic_.read_config(0, vendor);
    return vendor[0] == std::byte{0xff};
  };
  EXPECT_TRUE(reads_ones());
  EXPECT_EQ(fault("remove 3"), "ok\n");
  EXPECT_FALSE(reads_ones());
  EXPECT_THAT(fault("clear"), HasSubstr("2: do=stall"));
  EXPECT_TRUE(hca_faults_.empty());
  EXPECT_FALSE(group_.faults().armed());
  EXPECT_THAT(fault("add do=stall"), StartsWith("ok\n4: ")) << "a number is not used twice";
}

/// A server with a ConnectX and a JingZhao.
class ControlWithTwoKinds : public ControlWithHcas {
 protected:
  ControlWithTwoKinds() { jingzhao_.faults().set_rules(hca_faults_); }
  std::string fault(std::string_view words) {
    std::string answer;
    all_.answer(std::string("fault ") + std::string(words),
                {.send = [&](const auto& text) { answer = text; }});
    return answer;
  }
  std::unique_ptr<fabric::Port> other_port_ = switch_.create_port("jz");
  jingzhao::Device jingzhao_{{.name = "jz"}, *other_port_};
  ServerControl all_{*loop_, {{&first_, &nic_, &jingzhao_}, &group_.faults(), &hca_faults_}};
};

TEST_F(ControlWithTwoKinds, TheFunctionOfARuleDecidesWhichDocumentItFollows) {
  EXPECT_EQ(fault("add function=jz,opcode=SW2HW_MPT,do=fail-command,status=BAD_NVMEM"),
            "ok\n1: function=jz,opcode=SW2HW_MPT,do=fail-command,status=BAD_NVMEM: matched 0, "
            "fired 0\n");
  EXPECT_EQ(fault("add function=nic,do=fail-command,status=5"),
            "ok\n2: function=nic,do=fail-command,status=BAD_RESOURCE: matched 0, fired 0\n");
  EXPECT_THAT(fault("add function=jz,opcode=CREATE_QP,do=hang-command"),
              StartsWith("error: opcode=CREATE_QP: no such command"));
  EXPECT_THAT(fault("add function=jz,do=internal-error,syndrome=1"),
              HasSubstr("LOCAL_CATAS_ERROR has no syndrome"));
  EXPECT_EQ(fault("add function=jz,do=internal-error"),
            "ok\n3: function=jz,do=internal-error: matched 1, fired 1\n");
  EXPECT_THAT(fault("list"), HasSubstr("1: function=jz,opcode=SW2HW_MPT,do=fail-command,status=BAD_"
                                       "NVMEM: matched 0, fired 0\n2: function=nic"));
}

TEST_F(ControlWithTwoKinds, WithoutAFunctionARuleMustMeanTheSameForAll) {
  EXPECT_EQ(fault("add opcode=RDMA_WRITE,do=stall-send"),
            "ok\n1: opcode=RDMA_WRITE,do=stall-send: matched 0, fired 0\n");
  EXPECT_EQ(fault("add do=fail-command,status=BAD_PARAM"),
            "ok\n2: do=fail-command,status=BAD_PARAM: matched 0, fired 0\n");
  EXPECT_THAT(fault("add do=fail-command,status=5"),
              StartsWith("error: it means one thing to a ConnectX or an RSNIC, and another to a "
                         "JingZhao; without function= a rule is for all kinds of HCAs"));
  EXPECT_THAT(fault("add opcode=CREATE_QP,do=hang-command"),
              HasSubstr("; without function= a rule is for all kinds of HCAs"));
  EXPECT_EQ(fault("add do=remove"), "ok\n3: do=remove: matched 2, fired 2\n");
}

TEST(ControlPath, APathWithoutAListenerSaysWhatItIs) {
  const auto why = [](const std::string& path) {
    const auto answer = ask_server(path, "inspect");
    return answer ? *answer : answer.error().message;
  };
  const test::TemporaryDirectory directory;
  const auto file = directory / "file", abandoned = directory / "abandoned";
  std::ofstream(file) << "text";
  ASSERT_TRUE(os::bind_unix(abandoned, "test socket"));
  const std::string advice =
      "; give the path that a running softhca serve, run or env has as its --control";
  EXPECT_EQ(why(file), "control socket '" + file + "': this is a file, not a socket" + advice);
  EXPECT_EQ(why(directory / ""),
            "control socket '" + directory / "" + "': this is a directory, not a socket" + advice);
  EXPECT_EQ(why(abandoned), "control socket '" + abandoned +
                                "': no process listens there any more (Connection refused)" +
                                advice);
  EXPECT_EQ(why("/nonexistent/control"),
            "control socket '/nonexistent/control': connect: No such file or directory" + advice);
}

}  // namespace
}  // namespace softhca::server
