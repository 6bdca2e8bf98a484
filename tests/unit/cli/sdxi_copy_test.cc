// `softhca sdxi copy` over each host that needs no guest.
#include "cli/sdxi_copy.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "cli/progress_bar.h"
#include "cli/stop_signals.h"
#include "sdxi/device.h"
#include "sdxi/group.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/served_function.h"
#include "vfio_user/server.h"

namespace softhca::cli {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

std::string random_bytes(std::size_t size) {
  std::mt19937_64 source(size);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(source());
  return bytes;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Blocks SIGINT and SIGTERM, and has one of them arrive: it is handled once unblocked.
class PendingSignal {
 public:
  explicit PendingSignal(int signal) {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    EXPECT_EQ(pthread_sigmask(SIG_BLOCK, &both, &before_), 0);
    raise(signal);
  }
  ~PendingSignal() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  PendingSignal(const PendingSignal&) = delete;
  PendingSignal& operator=(const PendingSignal&) = delete;

 private:
  sigset_t before_{};
};

/// Runs `softhca serve --device sdxi` in a thread.
class Server {
 public:
  explicit Server(const std::string& path)
      : server_(vfio_user::Server::listen(loop_->events(), device_, path).value()) {
    loop_->add(device_);
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~Server() {
    loop_->stop();
    thread_.join();
  }

 private:
  sdxi::FunctionGroup group_;
  sdxi::Device device_{{}, group_};
  std::unique_ptr<vfio_user::ServeLoop> loop_ = vfio_user::ServeLoop::create().value();
  std::unique_ptr<vfio_user::Server> server_;
  std::thread thread_;
};

enum class Place : std::uint8_t { kInProcess, kSocket };

class SdxiCopyTest : public ::testing::TestWithParam<std::tuple<Place, bool>> {
 protected:
  SdxiCopyTest() {
    options_.from = directory_ / "from";
    options_.to = directory_ / "to";
    options_.block_size = 64 << 10;
    options_.quiet = true;
    options_.interrupts = std::get<1>(GetParam());
    if (std::get<0>(GetParam()) == Place::kInProcess) return;
    options_.socket = directory_ / "socket";
    server_ = std::make_unique<Server>(options_.socket);
  }
  void write(const std::string& bytes) { std::ofstream(options_.from, std::ios::binary) << bytes; }
  /// Counts files, to check that only the test's own files remain.
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(fs::path(options_.from).parent_path())) {
      count += entry.is_regular_file();
    }
    return count;
  }
  /// A copy during which another thread opens the pipe at `path`, does `part`, sends SIGINT and
  /// keeps the pipe open.
  template <class Pipe, class Part>
  util::Result<SdxiCopyResult> interrupted_copy(const std::string& path, Part part) {
    const auto me = pthread_self();
    std::promise<void> returned;
    std::thread other([&] {
      Pipe pipe(path, std::ios::binary);
      part(pipe);
      pthread_kill(me, SIGINT);
      returned.get_future().wait();
    });
    auto result = sdxi_copy(options_);
    returned.set_value();
    other.join();
    return result;
  }

  TemporaryDirectory directory_;
  SdxiCopyOptions options_;
  std::unique_ptr<Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Hosts, SdxiCopyTest,
                         ::testing::Combine(::testing::Values(Place::kInProcess, Place::kSocket),
                                            ::testing::Bool()),
                         [](const auto& hosts) {
                           return std::string(std::get<0>(hosts.param) == Place::kInProcess
                                                  ? "InProcess"
                                                  : "OverASocket") +
                                  (std::get<1>(hosts.param) ? "ByInterrupt" : "Polling");
                         });

TEST_P(SdxiCopyTest, FilesOfAllSizesArriveWhole) {
  options_.verify = true;
  for (const std::size_t size : {0, 1, 4095, 65535, 65536, 65537, (1 << 20) + 1}) {
    const auto bytes = random_bytes(size);
    write(bytes);
    const auto result = sdxi_copy(options_);
    ASSERT_TRUE(result) << size << " bytes: " << result.error().message;
    EXPECT_EQ(result->bytes, size);
    EXPECT_EQ(content(options_.to), bytes) << size << " bytes";
    EXPECT_EQ(files(), 2u);
  }
}

TEST_P(SdxiCopyTest, AnyBlockSizeAndNumberOfBlocksWill) {
  const auto bytes = random_bytes(100001);
  write(bytes);
  for (const auto& [size, blocks] : {std::pair{1000u, 1u}, {4097u, 3u}, {1u << 20, 8u}}) {
    options_.block_size = size;
    options_.blocks = blocks;
    ASSERT_TRUE(sdxi_copy(options_));
    EXPECT_EQ(content(options_.to), bytes) << size << " bytes a block";
  }
}

TEST_P(SdxiCopyTest, ACopyThatFailsLeavesTheTargetAsItWas) {
  write("new");
  std::ofstream(options_.to) << "old";
  options_.from = directory_ / "missing";
  EXPECT_FALSE(sdxi_copy(options_));
  EXPECT_EQ(content(options_.to), "old");
}

TEST_P(SdxiCopyTest, AFileIsNotCopiedOntoItself) {
  write("content");
  options_.to = options_.from;
  const auto result = sdxi_copy(options_);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("is the file to copy"), std::string::npos);
  EXPECT_EQ(content(options_.from), "content");
}

TEST_P(SdxiCopyTest, ASignalEndsTheCopyAndLeavesNothingBehind) {
  // This pipe stays open after part of the file has arrived, so only the signal ends the copy.
  ASSERT_EQ(::mkfifo(options_.from.c_str(), 0600), 0);
  const auto result = interrupted_copy<std::ofstream>(
      options_.from, [](auto& pipe) { pipe << random_bytes(300000) << std::flush; });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->interrupted);
  EXPECT_LE(result->bytes, 300000u);
  EXPECT_EQ(files(), 0u);
}

TEST_P(SdxiCopyTest, ASignalEndsTheWaitForTheOtherEndOfAPipe) {
  write("content");
  const auto pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto from_a_pipe = options_, to_a_pipe = options_;
  from_a_pipe.from = to_a_pipe.to = pipe;
  for (const auto& options : {from_a_pipe, to_a_pipe}) {
    const PendingSignal signal(SIGTERM);
    const auto result = sdxi_copy(options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_TRUE(result->interrupted);
  }
  EXPECT_EQ(files(), 1u);
}

TEST_P(SdxiCopyTest, ASignalEndsTheWaitForTheReaderOfAFullPipe) {
  write(random_bytes(300000));
  ASSERT_EQ(::mkfifo(options_.to.c_str(), 0600), 0);
  const auto result =
      interrupted_copy<std::ifstream>(options_.to, [](auto& pipe) { (void)pipe.get(); });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->interrupted);
}

TEST_P(SdxiCopyTest, PipesPassAFileOn) {
  const auto bytes = random_bytes(300000);
  ASSERT_EQ(::mkfifo(options_.from.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(options_.to.c_str(), 0600), 0);
  std::thread writer([&] { write(bytes); });
  std::string arrived;
  std::thread reader([&] { arrived = content(options_.to); });
  const auto result = sdxi_copy(options_);
  writer.join();
  reader.join();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->bytes, bytes.size());
  EXPECT_EQ(arrived, bytes);
}

// A loop of this process may already have blocked the signals for itself.
TEST_P(SdxiCopyTest, BlockedSignalsEndTheCopyToo) {
  write("content");
  const PendingSignal signal(SIGTERM);
  const auto result = sdxi_copy(options_);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->interrupted);
  // The copy must leave them blocked.
  sigset_t now;
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGINT), 1);
  EXPECT_EQ(sigismember(&now, SIGTERM), 1);
  EXPECT_FALSE(fs::exists(options_.to));
}

TEST(StopSignalsTest, ASignalBeforeTheWaitEndsIt) {
  std::array<int, 2> silent;
  ASSERT_EQ(::pipe(silent.data()), 0);
  const os::UniqueFd reader(silent[0]), writer(silent[1]);
  const StopSignals signals;
  ASSERT_TRUE(StopSignals::check());
  EXPECT_TRUE(StopSignals::wait(writer.get(), POLLOUT));
  EXPECT_TRUE(StopSignals::wait(reader.get(), POLLIN, util::monotonic_now()));
  raise(SIGTERM);
  EXPECT_FALSE(StopSignals::wait(reader.get(), POLLIN));
}

TEST(SdxiCopyErrorsTest, WithoutAFunctionTheErrorSaysWhatToDo) {
  const TemporaryDirectory directory;
  SdxiCopyOptions options;
  options.from = directory / "from";
  options.to = directory / "to";
  std::ofstream(options.from) << "content";
  options.socket = directory / "none";
  auto result = sdxi_copy(options);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("softhca serve"), std::string::npos);
  options.socket.clear();
  options.pci = "ffff:ff:1f.7";
  result = sdxi_copy(options);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("lspci"), std::string::npos);
  EXPECT_FALSE(fs::exists(options.to));
}

TEST(SdxiCopyErrorsTest, ATargetWithoutADirectoryIsNamedAsTheUserDid) {
  const TemporaryDirectory directory;
  SdxiCopyOptions options;
  options.from = directory / "from";
  options.to = directory / "none/to";
  options.quiet = true;
  std::ofstream(options.from) << "content";
  const auto result = sdxi_copy(options);
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message.starts_with(options.to + ":")) << result.error().message;
}

TEST(SdxiCopyErrorsTest, SocketAndPciExcludeEachOther) {
  CLI::App app;
  SdxiCopyOptions options;
  add_sdxi_copy(app, options);
  EXPECT_THROW(app.parse("copy a b --socket s --pci 01:00.0"), CLI::ExcludesError);
}

TEST(SdxiCopyErrorsTest, BlockSizesHaveUnits) {
  CLI::App app;
  SdxiCopyOptions options;
  add_sdxi_copy(app, options);
  app.parse("copy a b --block-size 64K --blocks 2 --verify");
  EXPECT_EQ(options.block_size, 65536u);
  EXPECT_EQ(options.blocks, 2u);
  EXPECT_TRUE(options.verify);
  EXPECT_THROW(app.parse("copy a b --block-size 0"), CLI::ValidationError);
}

TEST(ProgressBarTest, TheBarIsFullWhenAllIsDone) {
  EXPECT_EQ(ProgressBar::line(50, 100, 1), "[###############...............]  50 %  50 B  50 B/s");
  EXPECT_EQ(ProgressBar::line(2048, 2048, 2),
            "[##############################] 100 %  2.0 KiB  1.0 KiB/s");
  EXPECT_EQ(ProgressBar::line(3 << 20, std::nullopt, 1), "3.0 MiB  3.0 MiB/s");
}

}  // namespace
}  // namespace softhca::cli
