// `softhca serve` with a PF, its VF and a second PF. Each has its own client and socket.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "control/control_socket.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "driver/sdxi/mailboxes.h"
#include "driver/vfio_user_host.h"
#include "eventually.h"
#include "server/serve.h"

namespace softhca::server {
namespace {

using driver::DmaBuffer;
using driver::VfioUserHost;
using driver::sdxi::Context;
using driver::sdxi::Function;
using driver::sdxi::Mailboxes;

/// One client. To the server it looks like a separate machine.
struct Client {
  void connect(const std::string& path) {
    ASSERT_TRUE(eventually([&] {
      auto connected = VfioUserHost::connect(path, {.timeout = std::chrono::seconds(20)});
      if (connected) host = *std::move(connected);
      return host != nullptr;
    }));
    auto up = Function::bring_up(*host, {.patience = std::chrono::seconds(20)});
    ASSERT_TRUE(up) << up.error().message;
    function = *std::move(up);
    auto made = function->make_context();
    ASSERT_TRUE(made) << made.error().message;
    context = *std::move(made);
  }
  void leave() {
    context.reset();
    function.reset();
    host.reset();
  }
  DmaBuffer memory(std::size_t size, std::byte value) {
    auto buffer = DmaBuffer::allocate(*host, size).value();
    std::ranges::fill(buffer.bytes(), value);
    return buffer;
  }

  std::unique_ptr<VfioUserHost> host;
  std::unique_ptr<Function> function;
  std::unique_ptr<Context> context;
};

class ServeSdxiTest : public ::testing::Test {
 protected:
  ServeSdxiTest() {
    // serve() takes SIGTERM by signalfd; no other thread may get it first.
    ::sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::sigaddset(&set, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set, &old_signals_);
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    options_.devices = {"sdxi,vfs=2,name=pf", "sdxi-vf,pf=pf,name=vf", "sdxi,name=other"};
    options_.sockets = {directory_ / "pf", directory_ / "vf", directory_ / "other"};
    options_.control = directory_ / "control";
    server_ = std::thread([this] { result_ = serve(options_); });
    pf_.connect(options_.sockets[0]);
    vf_.connect(options_.sockets[1]);
    other_.connect(options_.sockets[2]);
  }
  ~ServeSdxiTest() override {
    for (auto* client : {&other_, &vf_, &pf_}) client->leave();
    ::kill(::getpid(), SIGTERM);
    server_.join();
    ::pthread_sigmask(SIG_SETMASK, &old_signals_, nullptr);
    EXPECT_TRUE(result_) << result_.error().message;
    std::filesystem::remove_all(directory_);
  }
  nlohmann::json inspect() {
    return nlohmann::json::parse(
        control::ask_control(options_.control, "inspect --json")->substr(3));
  }
  static Mailboxes::Message message(int seed) {
    Mailboxes::Message out;
    for (auto& byte : out) byte = static_cast<std::byte>(seed++);
    return out;
  }
  /// `reader` copies memory that `owner` has granted, and the test checks the copied bytes.
  static void copy_between(Client& reader, Client& owner) {
    auto from = owner.memory(100000, std::byte{0x42});
    auto to = reader.memory(100000, std::byte{0});
    const auto rkey = owner.function->grant(reader.function->capabilities().sfunc);
    ASSERT_TRUE(rkey) << rkey.error().message;
    const auto akey = reader.context->akeys().reach(owner.function->capabilities().sfunc, *rkey);
    ASSERT_TRUE(akey) << akey.error().message;
    const auto done = reader.context->copy({to.iova()}, {from.iova(), *akey}, 100000);
    ASSERT_TRUE(done) << done.error().message;
    const auto waited = reader.context->wait(*done);
    ASSERT_TRUE(waited) << waited.error().message;
    EXPECT_TRUE(std::ranges::equal(from.bytes().first(100000), to.bytes().first(100000)));
    ASSERT_TRUE(owner.function->revoke(*rkey));
    const auto refused = reader.context->copy({to.iova()}, {from.iova(), *akey}, 100);
    ASSERT_TRUE(refused);
    EXPECT_FALSE(reader.context->wait(*refused)) << "the key was revoked";
    EXPECT_TRUE(reader.context->recover());
  }

  ::sigset_t old_signals_;
  std::filesystem::path directory_;
  ServeOptions options_;
  util::Result<void> result_;
  std::thread server_;
  Client pf_, vf_, other_;
};

TEST_F(ServeSdxiTest, EachFunctionKnowsItsKind) {
  EXPECT_FALSE(pf_.function->capabilities().virtual_function);
  EXPECT_TRUE(vf_.function->capabilities().virtual_function);
  EXPECT_FALSE(other_.function->capabilities().virtual_function);
  EXPECT_EQ(inspect()["vf"]["function"]["vf_of"], "pf");
}

TEST_F(ServeSdxiTest, PfAndVfExchangeMessages) {
  Mailboxes pf(*pf_.function), vf(*vf_.function);
  EXPECT_EQ(vf.receive(Mailboxes::kPf), std::nullopt);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(pf.send(0, message(round)));
    const auto got = vf.wait(Mailboxes::kPf);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, message(round));
    EXPECT_TRUE(pf.taken(0));
    ASSERT_TRUE(vf.send(Mailboxes::kPf, message(100 + round)));
    EXPECT_EQ(*pf.wait(0), message(100 + round));
  }
}

TEST_F(ServeSdxiTest, AMessageArrivesWithAnInterrupt) {
  Mailboxes pf(*pf_.function), vf(*vf_.function);
  vf.set_interrupts(false, true);
  const auto before = vf_.host->interrupts(0);
  ASSERT_TRUE(pf.send(0, message(1)));
  const auto until = vf_.host->now() + std::chrono::seconds(20);
  while (vf_.host->interrupts(0) == before && vf_.host->now() < until) {
    vf_.host->wait_interrupt(0, until);
  }
  EXPECT_EQ(vf_.host->interrupts(0), before + 1);
  EXPECT_EQ(vf.receive(Mailboxes::kPf), message(1));
}

TEST_F(ServeSdxiTest, AMessageToAVfThatIsNotThereIsNotTaken) {
  Mailboxes pf(*pf_.function);
  ASSERT_TRUE(pf.send(1, message(1))) << "vfs=2, but one VF is served";
  EXPECT_FALSE(pf.taken(1));
}

TEST_F(ServeSdxiTest, AnAdministrativeOperationOfThePfActsOnItsVf) {
  const auto number = vf_.context->number();
  const auto stopped = pf_.function->stop_contexts_of_vf(0, number, number, false);
  ASSERT_TRUE(stopped) << stopped.error().message;
  EXPECT_EQ(vf_.context->state(), spec::sdxi::cxtv::CXTV_STOP_FN);
  EXPECT_EQ(pf_.context->state(), spec::sdxi::cxtv::CXTV_RUN);
  ASSERT_TRUE(pf_.function->start_contexts_of_vf(0, number, number));
  EXPECT_EQ(vf_.context->state(), spec::sdxi::cxtv::CXTV_RUN);
  auto from = vf_.memory(64, std::byte{7}), to = vf_.memory(64, std::byte{0});
  const auto done = vf_.context->copy({to.iova()}, {from.iova()}, 64);
  ASSERT_TRUE(done);
  ASSERT_TRUE(vf_.context->wait(*done));
  EXPECT_EQ(to.bytes()[63], std::byte{7});
}

TEST_F(ServeSdxiTest, AnOperationOnAVfThatIsNotThereFails) {
  EXPECT_FALSE(pf_.function->stop_contexts_of_vf(1, 1, 1, false));
}

TEST_F(ServeSdxiTest, AVfHasNoVfs) {
  EXPECT_FALSE(vf_.function->stop_contexts_of_vf(0, 1, 1, false));
}

TEST_F(ServeSdxiTest, MemoryOfAnotherClientIsCopiedByItsKey) {
  copy_between(other_, pf_);
  copy_between(pf_, vf_);
  copy_between(vf_, other_);
}

TEST_F(ServeSdxiTest, TheOthersGoOnWhenThePfsClientHasGone) {
  pf_.leave();
  copy_between(vf_, other_);
}

TEST_F(ServeSdxiTest, AFaultThatIsAddedAtRunTimeIsSeenByTheDriverAndInTheList) {
  const auto rule = "function=vf,context=" + std::to_string(vf_.context->number()) + ",do=fail";
  ASSERT_EQ(*control::ask_control(options_.control, "fault add " + rule),
            "ok\n1: " + rule + ": matched 0, fired 0\n");
  auto from = vf_.memory(64, std::byte{7}), to = vf_.memory(64, std::byte{0});
  const auto failing = vf_.context->copy({to.iova()}, {from.iova()}, 64);
  ASSERT_TRUE(failing);
  EXPECT_FALSE(vf_.context->wait(*failing));
  EXPECT_EQ(*control::ask_control(options_.control, "fault clear"),
            "ok\n1: " + rule + ": matched 1, fired 1\n");
  EXPECT_TRUE(vf_.context->recover());
}

TEST_F(ServeSdxiTest, ARuleThatIsRemovedLetsGoOfAFunctionThatSleeps) {
  ASSERT_TRUE(control::ask_control(options_.control,
                                   "fault add function=pf,operation=DSC_DMAB_COPY,do=stall"));
  auto from = pf_.memory(64, std::byte{7}), to = pf_.memory(64, std::byte{0});
  const auto stalled = pf_.context->copy({to.iova()}, {from.iova()}, 64);
  ASSERT_TRUE(stalled);
  while (control::ask_control(options_.control, "fault list")->find("fired 1") ==
         std::string::npos) {
  }
  EXPECT_FALSE(pf_.context->poll(*stalled));
  ASSERT_TRUE(control::ask_control(options_.control, "fault remove 1"));
  EXPECT_TRUE(pf_.context->wait(*stalled));
}

}  // namespace
}  // namespace softhca::server
