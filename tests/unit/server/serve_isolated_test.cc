// `softhca serve --isolate`: each guest is served by its own process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "eventually.h"
#include "served_test.h"
#include "server/isolate/spawn.h"

namespace softhca::server {
namespace {

using namespace std::chrono_literals;
using driver::WorkStatus;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ServeIsolated : public IsolateTest {
 protected:
  /// Two guests RDMA-write to each other, and the test checks the data.
  static void expect_rdma(HcaClient& a, HcaClient& b, std::size_t size) {
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      auto bytes = from->memory();
      for (std::size_t i = 0; i != bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + from->qp->qpn());
      }
      std::ranges::fill(to->memory(), std::byte{0});
      ASSERT_EQ(from->write(*to, size, 20s), WorkStatus::kSuccess);
      ASSERT_TRUE(std::ranges::equal(bytes.first(size), to->memory().first(size)));
    }
  }
  static std::string status_of(pid_t pid, const std::string& field) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(field + ":")) return line.substr(line.find_last_of("\t ") + 1);
    }
    return "";
  }
};

TEST_F(ServeIsolated, GuestsInTwoProcessesReachEachOtherByRdma) {
  start({"connectx,name=a", "connectx,name=b"});
  EXPECT_NE(pid_of("a"), pid_of("b"));
  EXPECT_NE(pid_of("a"), ::getpid());
  HcaClient a(socket(0), 1), b(socket(1), 2);
  a.connect(b);
  b.connect(a);
  expect_rdma(a, b, 100);
  expect_rdma(a, b, HcaClient::kMemory);
  const auto link = processes()["a"]["a"];
  EXPECT_GT(link["frames_to_it"], 64) << "through the server's switch";
  EXPECT_EQ(link["dropped_full"], 0);
}

TEST_F(ServeIsolated, DevicesOfOneGuestShareAProcess) {
  start({"connectx,name=a,guest=one", "connectx,name=b,guest=two", "connectx,name=c,guest=one"});
  EXPECT_EQ(processes().size(), 2u);
  EXPECT_GT(pid_of("a, c"), 0);
  HcaClient a(socket(0), 1), c(socket(2), 3);
  a.connect(c);
  c.connect(a);
  expect_rdma(a, c, 10000);
}

TEST_F(ServeIsolated, AProcessThatIsKilledIsReplacedAndTheOthersGoOn) {
  start({"connectx,name=a", "connectx,name=b", "connectx,name=hostile"});
  HcaClient a(socket(0), 1), b(socket(1), 2);
  a.connect(b);
  b.connect(a);
  {
    const auto hostile = connect_host(socket(2));
    const auto pid = pid_of("hostile");
    signal_process("hostile", SIGKILL);
    expect_rdma(a, b, 10000);
    ASSERT_TRUE(wait_for_start("hostile", 2));
    EXPECT_NE(pid_of("hostile"), pid);
    EXPECT_THAT(log(),
                HasSubstr("process " + std::to_string(pid) + " of hostile has ended by signal 9"));
  }
  HcaClient next(socket(2), 4);  // a fresh device at the same socket
  expect_rdma(a, b, HcaClient::kMemory);
  EXPECT_EQ(processes()["a"]["starts"], 1);
  EXPECT_EQ(processes()["b"]["starts"], 1);
}

TEST_F(ServeIsolated, OnlyThePeerOfAProcessThatEndedRetriesInVain) {
  start({"connectx,name=a", "connectx,name=b"});
  HcaClient a(socket(0), 1);
  {
    HcaClient b(socket(1), 2);
    a.connect(b);
    b.connect(a);
    expect_rdma(a, b, 1000);
    signal_process("b", SIGKILL);
    EXPECT_EQ(a.write(b, 1000, 30s), WorkStatus::kTransportRetryExceeded);
  }
  ASSERT_TRUE(wait_for_start("b", 2));
  HcaClient again(socket(1), 2);
}

TEST_F(ServeIsolated, AProcessHasASandbox) {
  start({"connectx,name=a"});
  EXPECT_EQ(status_of(pid_of("a"), "NoNewPrivs"), "1");
  if (log().find("sanitizers") == std::string::npos) {
    EXPECT_EQ(status_of(pid_of("a"), "Seccomp"), "2") << "a filter";
  }
}

TEST_F(ServeIsolated, AProcessHasNoDescriptorsOfTheServerButItsOwn) {
  start({"connectx,name=a", "connectx,name=b"});
  const auto fds = std::filesystem::path("/proc") / std::to_string(pid_of("a")) / "fd";
  for (const auto& entry : std::filesystem::directory_iterator(fds)) {
    const auto target = std::filesystem::read_symlink(entry).string();
    EXPECT_TRUE(target == "/dev/null" || target.starts_with("socket:") ||
                target.starts_with("pipe:") || target.starts_with("anon_inode:") ||
                target.starts_with("/memfd:softhca-"))
        << target;
  }
}

TEST_F(ServeIsolated, TheSocketsAreTheServersAndGoWithIt) {
  start({"connectx,name=a"}, {"--socket-mode=0640"});
  struct stat status;
  ASSERT_EQ(::stat(socket(0).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  server_->stop();
  EXPECT_FALSE(std::filesystem::exists(socket(0)));
}

TEST_F(ServeIsolated, TheProcessesEndWithTheServer) {
  start({"connectx,name=a", "sdxi,name=b"});
  const auto a = pid_of("a"), b = pid_of("b");
  ASSERT_TRUE(a > 0 && b > 0);
  server_->stop();
  EXPECT_NE(::kill(a, 0), 0);
  EXPECT_NE(::kill(b, 0), 0);
}

TEST_F(ServeIsolated, AServerThatIsKilledLeavesNoProcessesAndTheNextOneServesTheSameSockets) {
  start({"connectx,name=a"});
  const auto process = pid_of("a");
  ASSERT_GT(process, 0);
  ASSERT_EQ(::kill(server_->pid(), SIGKILL), 0);
  EXPECT_TRUE(WIFSIGNALED(server_->wait_end()));
  // The first process of a container may reap it late, or never.
  EXPECT_TRUE(eventually(
      [&] { return ::kill(process, 0) != 0 || status_of(process, "State") == "(zombie)"; }));
  const auto next = must(spawn_program(
      SOFTHCA_PROGRAM, {"serve", "--isolate", "--device=connectx,name=a", "--socket=" + socket(0)},
      {}, STDERR_FILENO));
  {
    HcaClient client(socket(0), 1);
  }
  int status = 0;
  ASSERT_EQ(::kill(next, SIGTERM), 0);
  ASSERT_EQ(::waitpid(next, &status, 0), next);
  EXPECT_EQ(describe_end(status), "exit status 0");
}

TEST_F(ServeIsolated, ACaptureShowsWhatCrossesBetweenTheProcesses) {
  const auto file = directory_ / "all.pcapng";
  start({"connectx,name=a", "connectx,name=b"}, {"--pcap=" + file.string()});
  {
    HcaClient a(socket(0), 1), b(socket(1), 2);
    a.connect(b);
    b.connect(a);
    expect_rdma(a, b, 20000);
  }
  server_->stop();
  EXPECT_GT(std::filesystem::file_size(file), 40000u);
}

TEST_F(ServeIsolated, ARingOfCapturesKeepsToItsSizes) {
  start({"connectx,name=a", "connectx,name=b"},
        {"--pcap=" + (directory_ / "ring").string(), "--pcap-size=64K", "--pcap-files=2"});
  {
    HcaClient a(socket(0), 1), b(socket(1), 2);
    a.connect(b);
    b.connect(a);
    for (int i = 0; i != 12; ++i) expect_rdma(a, b, 20000);
  }
  server_->stop();
  const auto first = std::filesystem::file_size(directory_ / "ring0");
  const auto second = std::filesystem::file_size(directory_ / "ring1");
  // The newer one may have just begun: how many frames there are depends on the machine's load.
  EXPECT_GT(std::min(first, second), 0u);
  EXPECT_GT(std::max(first, second), 32u * 1024);
  EXPECT_LE(std::max(first, second), 64u * 1024);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "ring2"));
}

TEST_F(ServeIsolated, InspectShowsAllFunctionsAndTheProcesses) {
  start({"connectx,name=a", "sdxi,name=b"});
  const auto all = nlohmann::json::parse(ask("inspect --json").substr(3));
  EXPECT_TRUE(all.contains("a") && all.contains("b") && all.contains("processes"));
  EXPECT_EQ(all["a"]["pci"]["vendor_id"], "0x15b3");
  const auto one = nlohmann::json::parse(ask("inspect --json b").substr(3));
  EXPECT_EQ(one, all["b"]);
  EXPECT_THAT(ask("inspect"), StartsWith("ok\nsofthca:\n  a:\n    pci:\n"));
  EXPECT_THAT(ask("inspect b"), StartsWith("ok\nb:\n  pci:\n"));
  EXPECT_EQ(ask("inspect c"), "error: there is no function 'c'\n");
  EXPECT_EQ(ask("inspect a b"), "error: inspect takes one function, or none for all\n");
  EXPECT_THAT(ask("shutdown"), StartsWith("error: a request is"));
}

TEST_F(ServeIsolated, EachLoopIsMeasuredAndReportsItsTurns) {
  start({"connectx,name=a", "sdxi,name=b,guest=one", "connectx,name=c,guest=one"},
        {"--measure-turns"});
  {
    HcaClient a(socket(0), 1);
  }
  const auto loops = server_->inspect("loop");
  EXPECT_GT(loops["server"]["longest_processor_ns"], 0);
  ASSERT_EQ(loops["processes"].size(), 2u);
  for (const auto* name : {"a", "b, c"}) {
    EXPECT_GT(loops["processes"][name]["turns"], 0) << name;
    EXPECT_GT(loops["processes"][name]["longest_processor_ns"], 0) << name;
  }
  EXPECT_THAT(ask("inspect loop"), StartsWith("ok\nloop:\n  server:\n    turns: "));
  EXPECT_THAT(ask("inspect loop"), HasSubstr("\n  processes:\n    a:\n      turns: "));
  EXPECT_EQ(server_->inspect()["loop"]["processes"].size(), 2u);
}

TEST_F(ServeIsolated, TheLoopOfAHangingProcessIsShownAsAnError) {
  start({"connectx,name=a", "connectx,name=b"});
  signal_process("a", SIGSTOP);
  const auto loops = server_->inspect("loop");
  EXPECT_THAT(loops["processes"]["a"]["error"].get<std::string>(), HasSubstr("does not answer"));
  EXPECT_GT(loops["processes"]["b"]["turns"], 0);
  EXPECT_FALSE(loops["processes"]["b"].contains("longest_processor_ns")) << "not measured";
  signal_process("a", SIGCONT);
}

TEST_F(ServeIsolated, AProcessThatHangsIsAnErrorOfItsOwnAndDelaysNoOther) {
  start({"connectx,name=a", "connectx,name=b"});
  signal_process("a", SIGSTOP);
  const auto before = util::monotonic_now();
  const auto all = nlohmann::json::parse(ask("inspect --json").substr(3));
  EXPECT_THAT(all["a"]["error"].get<std::string>(), HasSubstr("does not answer"));
  EXPECT_EQ(all["b"]["pci"]["vendor_id"], "0x15b3");
  EXPECT_LT(util::monotonic_now() - before, 20s);
  EXPECT_THAT(ask("inspect b"), StartsWith("ok\n"));
  signal_process("a", SIGCONT);
  EXPECT_THAT(ask("inspect a"), StartsWith("ok\n")) << "and late answers go to no other question";
}

TEST_F(ServeIsolated, FunctionsThatShareKeysCopyEachOthersMemoryInOneProcess) {
  start({"sdxi,vfs=1,name=pf,workers=1", "sdxi-vf,pf=pf,name=vf", "connectx,name=nic"});
  EXPECT_GT(pid_of("pf, vf"), 0);
  Mover pf(socket(0)), vf(socket(1));
  EXPECT_TRUE(pf.copy() && vf.copy());
  auto from = vf.memory(std::byte{0x42}), to = pf.memory(std::byte{0});
  const auto rkey = must(vf.function->grant(pf.function->capabilities().sfunc));
  const auto akey = must(pf.context->akeys().reach(vf.function->capabilities().sfunc, rkey));
  const auto done = must(pf.context->copy({to.iova()}, {from.iova(), akey}, 4096));
  must(pf.context->wait(done));
  EXPECT_EQ(to.bytes()[4095], std::byte{0x42});
}

TEST_F(ServeIsolated, FaultRulesAreForTheProcessOfTheirFunctionAndOutliveIt) {
  start({"sdxi,name=a,guest=one", "sdxi,name=b,guest=two", "connectx,name=nic"},
        {"--fault=function=b,operation=DSC_DMAB_COPY,do=fail"});
  EXPECT_EQ(ask("fault list"),
            "ok\n1: function=b,operation=DSC_DMAB_COPY,do=fail: matched 0, fired 0\n");
  EXPECT_EQ(ask("fault add function=a,context=9,do=fail"),
            "ok\n2: function=a,context=9,do=fail: matched 0, fired 0\n");
  EXPECT_EQ(ask("fault add function=a,operation=DSC_DMAB_COPY,every=2,do=fail"),
            "ok\n3: function=a,operation=DSC_DMAB_COPY,every=2,do=fail: matched 0, fired 0\n");
  EXPECT_THAT(ask("fault add function=nic,do=fail"),
              StartsWith("error: do=fail: no such action; a rule is [function=NAME,][qp=N,]"));
  EXPECT_EQ(ask("fault add function=c,do=fail"), "error: there is no function 'c'\n");
  EXPECT_THAT(ask("fault remove 7"), StartsWith("error: there is no rule '7'"));
  {
    Mover a(socket(0)), b(socket(1));
    EXPECT_TRUE(a.copy());
    EXPECT_FALSE(a.copy());
    EXPECT_FALSE(b.copy());
  }
  EXPECT_THAT(
      ask("fault list"),
      HasSubstr("3: function=a,operation=DSC_DMAB_COPY,every=2,do=fail: matched 2, fired 1\n"));
  EXPECT_EQ(ask("fault remove 2"), "ok\n");
  signal_process("a", SIGKILL);
  ASSERT_TRUE(wait_for_start("a", 2));
  {
    Mover a(socket(0));
    EXPECT_TRUE(a.copy());
    EXPECT_FALSE(a.copy());
  }
  EXPECT_EQ(ask("fault remove 3"), "ok\n");
  Mover a(socket(0));
  EXPECT_TRUE(a.copy() && a.copy());
  EXPECT_THAT(ask("fault clear"), Not(HasSubstr("function=a")));
  EXPECT_EQ(ask("fault list"), "ok\n");
}

TEST_F(ServeIsolated, AProgramThatDoesNotStartIsAnError) {
  start({"connectx,name=a"}, {"--device-program=/bin/false"});
  EXPECT_EQ(describe_end(server_->wait_end()), "exit status 1");
  EXPECT_THAT(log(), HasSubstr("a did not start"));
  EXPECT_FALSE(std::filesystem::exists(socket(0)));
}

}  // namespace
}  // namespace softhca::server
