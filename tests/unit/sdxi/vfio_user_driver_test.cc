// src/driver/sdxi against a function behind a vfio-user socket, as `softhca serve` offers it.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "driver/vfio_user_host.h"
#include "sdxi/device.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/served_function.h"
#include "vfio_user/server.h"

namespace softhca::driver::sdxi {
namespace {

using softhca::sdxi::Device;
using softhca::sdxi::FunctionGroup;
using softhca::test::TemporaryDirectory;
using vfio_user::ServeLoop;
using vfio_user::Server;

/// A server with one function, in its own thread or driven by the waiting caller.
class Served {
 public:
  enum class Where : std::uint8_t { kThread, kPumped };

  explicit Served(Where where) : where_(where) {
    loop_->add(device_);
    if (where_ == Where::kThread) thread_ = std::thread([this] { loop_->run(); });
  }
  ~Served() { stop(); }
  void stop() {
    loop_->stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }
  util::Result<std::unique_ptr<VfioUserHost>> connect(
      util::Duration timeout = std::chrono::seconds(20)) {
    VfioUserHost::Options options{.timeout = timeout, .pump = {}};
    if (where_ == Where::kPumped) options.pump = [this] { loop_->turn(util::Time{}); };
    return VfioUserHost::connect(path_, std::move(options));
  }
  Device& device() { return device_; }
  /// Lets the server process pending events.
  void settle() {
    for (int i = 0; i < 10; ++i) loop_->turn(util::Time{});
  }

 private:
  Where where_;
  TemporaryDirectory directory_;
  std::string path_ = directory_ / "sdxi";
  FunctionGroup group_;
  Device device_{{}, group_};
  std::unique_ptr<ServeLoop> loop_ = ServeLoop::create().value();
  /// For memory by messages. Its clock stands still, so no answer of the client is late.
  const Server::Options options_{
      .reply_timeout = std::chrono::seconds(20),
      .clocks = {.now = [] { return util::Time(std::chrono::hours(1)); }}};
  std::unique_ptr<Server> server_ =
      Server::listen(loop_->events(), device_, path_, options_).value();
  std::thread thread_;
};

class VfioUserDriverTest : public ::testing::TestWithParam<Served::Where> {
 protected:
  VfioUserDriverTest() {
    auto host = served_.connect();
    if (!host) throw std::runtime_error(host.error().message);
    host_ = *std::move(host);
    auto function = Function::bring_up(*host_, {.patience = kPatience});
    if (!function) throw std::runtime_error(function.error().message);
    function_ = *std::move(function);
    context_ = function_->make_context().value();
  }
  ~VfioUserDriverTest() override {
    context_.reset();
    function_.reset();
  }
  DmaBuffer memory(std::size_t size, int seed) {
    auto buffer = DmaBuffer::allocate(*host_, size).value();
    int i = seed;
    for (auto& byte : buffer.bytes()) byte = static_cast<std::byte>(i++ * 7);
    return buffer;
  }

  static constexpr std::chrono::seconds kPatience{20};
  Served served_{GetParam()};
  std::unique_ptr<VfioUserHost> host_;
  std::unique_ptr<Function> function_;
  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Servers, VfioUserDriverTest,
                         ::testing::Values(Served::Where::kThread, Served::Where::kPumped),
                         [](const auto& where) {
                           return where.param == Served::Where::kThread ? "InAThread" : "Pumped";
                         });

TEST_P(VfioUserDriverTest, CopiesInMemoryThatIsSharedWithTheServer) {
  auto from = memory(3 << 20, 1), to = memory(3 << 20, 2);
  const auto done = context_->copy({to.iova(5)}, {from.iova(3)}, (3 << 20) - 5);
  ASSERT_TRUE(done && context_->wait(*done));
  EXPECT_TRUE(std::equal(from.bytes().begin() + 3, from.bytes().begin() + (3 << 20) - 2,
                         to.bytes().begin() + 5));
}

TEST_P(VfioUserDriverTest, InterruptsComeByEventfd) {
  const auto akey = context_->akeys().use_interrupt(1);
  ASSERT_TRUE(akey);
  const std::array work{Descriptor::nop()};
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const auto done = context_->submit(work, *akey);
    ASSERT_TRUE(done);
    const auto waited = context_->wait_interrupt(*done, 1);
    ASSERT_TRUE(waited) << waited.error().message;
  }
  // The last interrupt may still be in flight when its descriptor has completed.
  const auto end = host_->now() + kPatience;
  while (host_->interrupts(1) == 0 && host_->now() < end) host_->wait_interrupt(1, end);
  EXPECT_GE(host_->interrupts(1), 1u);
  EXPECT_LE(host_->interrupts(1), 20u);
  EXPECT_EQ(host_->interrupts(0), 0u);
}

TEST_P(VfioUserDriverTest, AnErrorIsReportedInWordsAndRecovered) {
  auto to = memory(4096, 1);
  auto done = context_->copy({to.iova()}, {0x1000}, 64);
  ASSERT_TRUE(done);
  const auto waited = context_->wait(*done);
  ASSERT_FALSE(waited);
  EXPECT_NE(waited.error().message.find("ERRV_DSC_BUF"), std::string::npos);
  ASSERT_TRUE(context_->recover());
  done = context_->copy({to.iova()}, {to.iova(2048)}, 64);
  EXPECT_TRUE(done && context_->wait(*done));
}

TEST_P(VfioUserDriverTest, ADriverWhoseServerGoesIsNotified) {
  served_.stop();
  std::array<std::byte, 4> id{};
  host_->read_config(0, id);
  EXPECT_EQ(util::load_le32(id.data()), 0xffffffffu);
  EXPECT_TRUE(host_->lost());
  // The wait ends early if completion is impossible.
  const auto before = util::monotonic_now();
  auto memory_of_ours = memory(4096, 1);
  const auto done = context_->copy({memory_of_ours.iova()}, {memory_of_ours.iova(2048)}, 64);
  EXPECT_FALSE(done && context_->wait(*done));
  context_.reset();
  function_.reset();
  EXPECT_LT(util::monotonic_now() - before, kPatience);
}

/// Tests that need a server in its own thread.
using VfioUserThreadTest = VfioUserDriverTest;
INSTANTIATE_TEST_SUITE_P(Servers, VfioUserThreadTest, ::testing::Values(Served::Where::kThread));

TEST_P(VfioUserThreadTest, AProgramsOwnMemoryIsReachedByMessages) {
  std::vector<std::byte> from(10000, std::byte{0x5a}), to(10000);
  const auto source = DmaMapping::map(*host_, from), target = DmaMapping::map(*host_, to);
  ASSERT_TRUE(source && target);
  const auto at = [](const DmaMapping& mapping, const std::vector<std::byte>& bytes) {
    return mapping.pages().iova +
           static_cast<std::uint64_t>(bytes.data() - mapping.pages().bytes.data());
  };
  const auto done = context_->copy({at(*target, to)}, {at(*source, from)}, from.size());
  ASSERT_TRUE(done);
  const auto waited = context_->wait(*done);
  ASSERT_TRUE(waited) << waited.error().message;
  EXPECT_EQ(from, to);
}

// SDXI 5.2.1
TEST_P(VfioUserThreadTest, SeveralThreadsProduceForOneContext) {
  constexpr int kThreads = 4, kEach = 500;
  auto sum = memory(64, 0);
  util::store_le64(sum.bytes().data(), 0);
  std::vector<std::thread> producers;
  for (int t = 0; t < kThreads; ++t) {
    producers.emplace_back([&] {
      const std::array two{
          Descriptor::atomic(spec::atomic_subtype::DSC_ATM_UADD, {sum.iova()}, 8, 1),
          Descriptor::atomic(spec::atomic_subtype::DSC_ATM_UADD, {sum.iova()}, 8, 100000)};
      for (int i = 0; i < kEach; ++i) {
        while (!context_->enqueue(two)) std::this_thread::yield();
      }
    });
  }
  for (auto& producer : producers) producer.join();
  std::array last{Descriptor::nop().fence()};
  const auto done = context_->submit(last);
  ASSERT_TRUE(done && context_->wait(*done));
  EXPECT_EQ(util::load_le64(sum.bytes().data()), std::uint64_t{kThreads} * kEach * 100001);
}

TEST(VfioUserHostTest, TheServerForgetsTheMemoryOfAClientThatGoes) {
  Served served(Served::Where::kPumped);
  {
    const auto host = served.connect();
    ASSERT_TRUE(host);
    const auto buffer = DmaBuffer::allocate(**host, 4096);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(served.device().dma().mappings().size(), 1u);
  }
  served.settle();
  EXPECT_TRUE(served.device().dma().mappings().empty());
}

TEST(VfioUserHostTest, AServerThatHasItsClientKeepsTheNextOneWaiting) {
  Served served(Served::Where::kThread);
  const auto first = served.connect();
  ASSERT_TRUE(first);
  const auto second = served.connect(std::chrono::milliseconds(50));
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("one client at a time"), std::string::npos);
}

TEST(VfioUserHostTest, ASocketWithoutAServerIsAnErrorInWords) {
  const TemporaryDirectory directory;
  const auto host = VfioUserHost::connect(directory / "none", {});
  ASSERT_FALSE(host);
  EXPECT_NE(host.error().message.find("softhca serve"), std::string::npos);
}

}  // namespace
}  // namespace softhca::driver::sdxi
