// Clients that connect and leave, several servers, DMA by message, the loop.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <thread>

#include "eventually.h"
#include "os/event_signal.h"
#include "vfio_user/process_limits.h"
#include "vfio_user/served_function.h"

namespace softhca {
namespace {

using namespace vfio_user::protocol;
using test::bytes_of;
using test::event;
using test::memory_file;
using test::open_fds;
using test::signals;
using test::TestFunction;

class LifecycleTest : public test::ServedFunction {};

TEST_F(LifecycleTest, DisconnectResetsTheFunctionAndTakesItsMemory) {
  {
    auto client = negotiated();
    const auto file = memory_file(4096);
    const auto fd = event();
    const int fds[] = {fd.get()};
    ASSERT_EQ(client.map_dma(0, 4096, file.get(), 0), 0);
    ASSERT_EQ(
        client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 1, {}, fds),
        0);
    const std::uint16_t command = 6;
    ASSERT_EQ(client.write_region(kConfigRegion, 4, bytes_of(command)), 0);
  }
  const auto resets = function_.resets;
  settle();
  EXPECT_FALSE(server_->connected());
  EXPECT_EQ(function_.resets, resets + 1);
  EXPECT_TRUE(function_.dma().mappings().empty());
  EXPECT_FALSE(function_.config().bus_master_enabled());
  function_.msix().raise(0);  // has no effect
}

TEST_F(LifecycleTest, AHundredClientsLeaveNoDescriptorBehind) {
  os::EventSignal::instance();  // opens its own descriptors on first use
  const auto before = open_fds();
  for (int i = 0; i < 100; ++i) {
    auto client = negotiated();
    const auto file = memory_file(1 << 20);
    std::vector<os::UniqueFd> events;
    std::vector<int> fds;
    for (int v = 0; v < 16; ++v) fds.push_back(events.emplace_back(event()).get());
    ASSERT_EQ(client.map_dma(0, 1 << 20, file.get(), 0), 0);
    ASSERT_EQ(
        client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 16, {}, fds),
        0);
    // Leaves without notice, every third in the middle of a message.
    if (i % 3 == 0) {
      ASSERT_TRUE(client.send_raw(std::array<std::byte, 9>{}));
    }
  }
  settle();
  EXPECT_EQ(test::open_fds_after(before), before);
  EXPECT_FALSE(server_->connected());
}

TEST_F(LifecycleTest, ASecondClientWaitsUntilTheFirstHasGone) {
  auto first = std::make_optional(negotiated());
  auto impatient =
      vfio_user::Client::connect(path_, {.timeout = std::chrono::milliseconds(50),
                                         .pump = [this] { loop_->turn(util::Time{}); }})
          .value();
  EXPECT_FALSE(impatient.negotiate()) << "not served yet";
  first.reset();
  // The server now answers the proposal that it had not answered.
  std::optional<util::Result<vfio_user::Client::Reply>> reply;
  EXPECT_TRUE(eventually([&] { return (reply = impatient.receive_reply())->has_value(); }));
  EXPECT_EQ((*reply)->error, 0u);
}

TEST_F(LifecycleTest, TwoServersOfOneLoopServeTwoFunctions) {
  TestFunction other("test1");
  loop_->add(other);
  const auto other_path = directory_ / "other.sock";
  const auto other_server = vfio_user::Server::listen(loop_->events(), other, other_path).value();
  auto first = negotiated();
  auto second = connect(other_path);
  ASSERT_TRUE(second.negotiate());
  const std::uint32_t one = 1, two = 2;
  EXPECT_EQ(first.write_region(0, 0, bytes_of(one)), 0);
  EXPECT_EQ(second.write_region(0, 0, bytes_of(two)), 0);
  EXPECT_EQ(function_.memory[0], std::byte{1});
  EXPECT_EQ(other.memory[0], std::byte{2});
  // A hostile client of one server must not disturb the other.
  ASSERT_TRUE(first.send_raw(std::array<std::byte, 16>{}));
  EXPECT_TRUE(first.wait_closed());
  EXPECT_EQ(second.write_region(0, 0, bytes_of(one)), 0);
}

TEST_F(LifecycleTest, AFunctionThatHoldsDeferredWorkRunsUntilItIsDone) {
  auto client = negotiated();
  const auto fd = event();
  const int fds[] = {fd.get()};
  ASSERT_EQ(
      client.set_irqs(kIrqSetDataEventfd | kIrqSetActionTrigger, kMsixIrqIndex, 0, 1, {}, fds), 0);
  const std::uint32_t vector = 0;
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(client.post_region(0, TestFunction::kDoorbell, bytes_of(vector)));
  settle();
  EXPECT_EQ(signals(fd), 40u);
}

TEST_F(LifecycleTest, AStaleSocketFileIsReplaced) {
  server_.reset();
  {
    os::UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  const auto server = vfio_user::Server::listen(loop_->events(), function_, path_);
  ASSERT_TRUE(server) << server.error().message;
}

TEST_F(LifecycleTest, ASocketInUseOrAnotherFileIsNotReplaced) {
  EXPECT_FALSE(vfio_user::Server::listen(loop_->events(), function_, path_));
  auto client = negotiated();  // the first server is unharmed
  const auto file = directory_ / "precious";
  ::close(::creat(file.c_str(), 0600));
  EXPECT_FALSE(vfio_user::Server::listen(loop_->events(), function_, file));
  struct stat status;
  EXPECT_EQ(::stat(file.c_str(), &status), 0);
}

TEST_F(LifecycleTest, AServerThatTriesASocketInUseLeavesNoLineInItsLog) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(vfio_user::Server::listen(loop_->events(), function_, path_));
    settle();
  }
  EXPECT_TRUE(log_.empty()) << log_.front();
  (void)negotiated();
  settle();
  EXPECT_EQ(log_, (std::vector<std::string>{"test0: vfio-user client connected",
                                            "test0: vfio-user client gone, function reset"}));
}

TEST_F(LifecycleTest, BadPathsAreRefused) {
  EXPECT_FALSE(vfio_user::Server::listen(loop_->events(), function_, ""));
  EXPECT_FALSE(vfio_user::Server::listen(loop_->events(), function_, std::string(200, 'x')));
  EXPECT_FALSE(
      vfio_user::Server::listen(loop_->events(), function_, directory_ / "no/such/folder"));
}

TEST_F(LifecycleTest, TheSocketIsItsOwnersAloneWhateverTheUmaskSays) {
  for (const ::mode_t umask : {0000, 0777}) {
    server_.reset();
    const auto before = ::umask(umask);
    server_ = vfio_user::Server::listen(loop_->events(), function_, path_).value();
    ::umask(before);
    struct stat status;
    ASSERT_EQ(::stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
}

TEST_F(LifecycleTest, OthersMayConnectIfTheServerIsAskedToAllowIt) {
  serve_with({.socket = {.mode = 0660, .group = ::getgid()}});
  struct stat status;
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
  EXPECT_EQ(status.st_gid, ::getgid());
}

TEST_F(LifecycleTest, ADirectoryThatEverybodyMayWriteToIsRefused) {
  const auto open = directory_ / "open";
  ASSERT_EQ(::mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
  const auto refused = vfio_user::Server::listen(loop_->events(), function_, open + "/device.sock");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("everybody may write"), std::string::npos);
  ASSERT_EQ(::chmod(open.c_str(), 01777), 0);
  EXPECT_TRUE(vfio_user::Server::listen(loop_->events(), function_, open + "/device.sock"))
      << "with the sticky bit, as /tmp has";
}

TEST(ProcessLimits, AreSharedOutBetweenTheClients) {
  const auto one = vfio_user::share_process(1).value();
  const auto four = vfio_user::share_process(4).value();
  EXPECT_LE(4 * four.maps, 65530u);
  EXPECT_GT(four.maps, 1000u);
  EXPECT_LT(four.eventfds, one.eventfds);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
  EXPECT_LT(4 * four.eventfds, limit.rlim_cur);
  EXPECT_FALSE(vfio_user::share_process(1'000'000)) << "too little for each";
}

TEST_F(LifecycleTest, TheServerRemovesItsSocketFile) {
  server_.reset();
  struct stat status;
  EXPECT_NE(::stat(path_.c_str(), &status), 0);
}

// --- DMA by message: the function waits for the client, so the client has a thread ---

class DmaByMessageTest : public LifecycleTest {
 protected:
  /// Runs the loop in its own thread while `client_side` runs here. The clock of the server stands
  /// still, so no answer of the client is late.
  void run_beside(const std::function<void(vfio_user::Client&)>& client_side) {
    serve_with({.reply_timeout = std::chrono::seconds(20),
                .clocks = {.now = [] { return util::Time(std::chrono::hours(1)); }}});
    std::thread thread([this] { loop_->run(); });
    {
      auto client =
          vfio_user::Client::connect(path_, {.timeout = std::chrono::seconds(20)}).value();
      ASSERT_TRUE(client.negotiate(capabilities_));
      const std::uint16_t memory_and_bus_master = 0x0006;
      ASSERT_EQ(client.write_region(kConfigRegion, 4, bytes_of(memory_and_bus_master)), 0);
      client_side(client);
    }
    loop_->stop();
    thread.join();
  }
  static std::uint64_t read(vfio_user::Client& client, std::uint64_t offset) {
    std::uint64_t value = 0;
    EXPECT_EQ(client.read_region(0, offset, std::as_writable_bytes(std::span(&value, 1))), 0);
    return value;
  }
  /// Waits until the function has recorded the outcome of its DMA.
  static std::uint64_t outcome(vfio_user::Client& client) {
    std::uint64_t value = 0;
    client.serve_until([n = 0]() mutable { return ++n > 5; });
    eventually([&] { return (value = read(client, TestFunction::kDmaOk)) != 0; });
    return value;
  }
  std::string capabilities_ = R"({"capabilities":{"max_data_xfer_size":1048576}})";
};

TEST_F(DmaByMessageTest, ReadsMemoryThatCameWithoutADescriptor) {
  run_beside([](vfio_user::Client& client) {
    std::vector<std::byte> memory(4096);
    util::store_le64(&memory[16], 0xfeedface12345678);
    ASSERT_EQ(client.map_remote_dma(0x8000, memory), 0);
    const std::uint64_t at = 0x8010;
    ASSERT_EQ(client.write_region(0, TestFunction::kDmaFrom, bytes_of(at)), 0);
    EXPECT_EQ(outcome(client), 1u);
    EXPECT_EQ(read(client, TestFunction::kDmaResult), 0xfeedface12345678);
  });
}

TEST_F(DmaByMessageTest, WritesMemoryThatCameWithoutADescriptor) {
  run_beside([](vfio_user::Client& client) {
    std::vector<std::byte> memory(4096);
    ASSERT_EQ(client.map_remote_dma(0x8000, memory), 0);
    const std::uint64_t at = 0x8ff8;
    ASSERT_EQ(client.write_region(0, TestFunction::kDmaTo, bytes_of(at)), 0);
    EXPECT_EQ(outcome(client), 1u);
    EXPECT_EQ(util::load_le64(&memory[0xff8]), TestFunction::kDmaPattern);
  });
}

TEST_F(DmaByMessageTest, SplitsAccessesAtTheClientsMaximum) {
  capabilities_ = R"({"capabilities":{"max_data_xfer_size":3}})";
  run_beside([](vfio_user::Client& client) {
    std::vector<std::byte> memory(4096);
    util::store_le64(&memory[0], 0x0102030405060708);
    ASSERT_EQ(client.map_remote_dma(0, memory), 0);
    const std::uint64_t at = 0;
    ASSERT_EQ(client.write_region(0, TestFunction::kDmaFrom, bytes_of(at)), 0);
    EXPECT_EQ(outcome(client), 1u);
    EXPECT_EQ(read(client, TestFunction::kDmaResult), 0x0102030405060708u);
  });
}

TEST_F(DmaByMessageTest, ARefusalOfTheClientIsAFailedAccess) {
  run_beside([](vfio_user::Client& client) {
    // Mapped at the server, but unknown to the client's own bookkeeping, which answers ENOENT.
    ASSERT_EQ(client.map_dma(0x8000, 4096, -1, 0), 0);
    const std::uint64_t at = 0x8000;
    ASSERT_EQ(client.write_region(0, TestFunction::kDmaFrom, bytes_of(at)), 0);
    EXPECT_EQ(outcome(client), 2u);
  });
}

TEST_F(DmaByMessageTest, CommandsThatArriveMeanwhileAreServedAfterwards) {
  run_beside([](vfio_user::Client& client) {
    std::vector<std::byte> memory(4096);
    util::store_le64(&memory[0], 77);
    ASSERT_EQ(client.map_remote_dma(0, memory), 0);
    const std::uint64_t at = 0;
    ASSERT_EQ(client.write_region(0, TestFunction::kDmaFrom, bytes_of(at)), 0);
    // While the function waits for its DMA_READ, these writes arrive before the reply.
    for (std::uint64_t i = 1; i <= 50; ++i) ASSERT_TRUE(client.post_region(0, 0, bytes_of(i)));
    EXPECT_EQ(outcome(client), 1u);
    EXPECT_EQ(read(client, TestFunction::kDmaResult), 77u);
    EXPECT_EQ(read(client, 0), 50u);
  });
}

TEST_F(DmaByMessageTest, AMapBehindAReplyKeepsItsDescriptor) {
  run_beside([](vfio_user::Client& client) {
    std::vector<std::byte> memory(4096);
    ASSERT_EQ(client.map_remote_dma(0, memory), 0);
    const std::uint64_t from = 0;
    ASSERT_TRUE(client.post_region(0, TestFunction::kDmaFrom, bytes_of(from)));
    pollfd asked{.fd = client.fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&asked, 1, 20'000), 1) << "the server's DMA_READ, its first message";
    // One read of the server returns both; it takes the reply from in front of the map.
    struct {
      Header reply{.message_id = 1,
                   .command = static_cast<std::uint16_t>(Command::kDmaRead),
                   .message_size = sizeof(Header) + sizeof(DmaAccess) + sizeof(std::uint64_t),
                   .flags = kTypeReply,
                   .error = 0};
      DmaAccess access{.address = 0, .count = sizeof(std::uint64_t)};
      std::uint64_t data = 77;
      Header command{.message_id = 1000,
                     .command = static_cast<std::uint16_t>(Command::kDmaMap),
                     .message_size = sizeof(Header) + sizeof(DmaMap),
                     .flags = kFlagNoReply,
                     .error = 0};
      DmaMap map{.argsz = 32, .flags = 3, .offset = 0, .address = 0x10000, .size = 4096};
    } both;
    const auto file = memory_file(4096);
    const int fd = file.get();
    test::send_with_fds(client.fd(), bytes_of(both), std::span(&fd, 1));
    EXPECT_EQ(outcome(client), 1u);
    EXPECT_EQ(read(client, TestFunction::kDmaResult), 77u);

    const std::uint64_t nothing = 0, to = 0x10000;
    ASSERT_EQ(client.write_region(0, TestFunction::kDmaOk, bytes_of(nothing)), 0);
    ASSERT_EQ(client.write_region(0, TestFunction::kDmaTo, bytes_of(to)), 0);
    EXPECT_EQ(outcome(client), 1u);
    std::uint64_t written = 0;
    EXPECT_EQ(::pread(fd, &written, sizeof written, 0), 8);
    EXPECT_EQ(written, TestFunction::kDmaPattern);
  });
}

TEST_F(LifecycleTest, AClientThatDoesNotAnswerCostsOneTimeoutOnly) {
  static util::Time now;
  now = util::Time(std::chrono::hours(1));
  serve_with(
      {.reply_timeout = std::chrono::milliseconds(1), .clocks = {.now = [] { return now; }}});
  auto client = negotiated();
  ASSERT_EQ(client.map_dma(0x8000, 4096, -1, 0), 0);
  vfio_user::MessageStream socket(os::UniqueFd(::dup(client.fd())));
  const auto requests = [&] {
    unsigned count = 0;
    while (socket.receive() == vfio_user::MessageStream::Received::kData) {
      while (socket.next()) ++count;
    }
    return count;
  };
  for (const auto pause : {0, 4, 1}) {
    now += std::chrono::seconds(pause);
    for (int i = 0; i < 20; ++i) {
      function_.dma_from = 0x8000;
      loop_->turn(util::Time{});  // in this thread, so no client answers
      EXPECT_EQ(util::load_le64(&function_.memory[TestFunction::kDmaOk]), 2u);
    }
    EXPECT_EQ(requests(), pause == 4 ? 0u : 1u) << "it is asked again after five seconds";
  }
  EXPECT_TRUE(server_->connected());
}

TEST_F(LifecycleTest, DmaByMessageInsideARegisterAccessFailsAtOnce) {
  static unsigned looks;
  const auto clock = [] { return util::Time(std::chrono::nanoseconds(++looks)); };
  serve_with({.clocks = {.now = clock}});
  auto client = negotiated();
  ASSERT_EQ(client.map_dma(0x8000, 4096, -1, 0), 0);
  // DMA belongs in Function::run. This function tries it at reset, inside a handler.
  class Impatient final : public pcie::InterruptSink {
   public:
    explicit Impatient(pcie::Function& function) : function_(function) {}
    void raise(std::uint16_t) override {
      const auto before = looks;
      std::array<std::byte, 8> data;
      worked = function_.dma().read(0x8000, data);
      taken = looks - before;
    }
    bool worked = true;
    unsigned taken = 1;

   private:
    pcie::Function& function_;
  } sink(function_);
  function_.msix().set_sink(&sink, pcie::Masking::kExternal);
  function_.msix().set_vector_masked(0, false);
  EXPECT_EQ(client.set_irqs(kIrqSetDataNone | kIrqSetActionTrigger, kMsixIrqIndex, 0, 1), 0);
  EXPECT_FALSE(sink.worked);
  EXPECT_EQ(sink.taken, 0u) << "it has a deadline, and so waits for the client";
}

// --- the loop ---

TEST(ServeLoop, EndsAtSigtermAndSigint) {
  for (const int number : {SIGTERM, SIGINT}) {
    auto loop = vfio_user::ServeLoop::create().value();
    ASSERT_TRUE(loop->events().stop_on_signals());
    ::kill(::getpid(), number);
    loop->run();
    EXPECT_TRUE(loop->events().stopped());
  }
}

}  // namespace
}  // namespace softhca
