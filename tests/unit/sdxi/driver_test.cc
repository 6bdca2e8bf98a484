// src/driver/sdxi against the device, over the same interface as any other driver.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "driver/in_process_host.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "sdxi/device.h"

namespace softhca::driver::sdxi {
namespace {

using softhca::sdxi::Device;
using softhca::sdxi::DeviceOptions;
using softhca::sdxi::FunctionGroup;

/// A function, its host, and a program's memory.
struct Node {
  explicit Node(FunctionGroup& group, const DeviceOptions& options = {}, bool msi = false)
      : device(options, group),
        host(device, {.progress = [this] { progress(); },
                      .clock = util::monotonic_now,
                      .msi = msi,
                      .on_interrupt = {}}) {}
  ~Node() {
    function.reset();
    if (other != nullptr) other->other = nullptr;
  }
  void progress() {
    device.run(util::monotonic_now());
    if (other != nullptr) other->device.run(util::monotonic_now());
  }
  void bring_up(const Function::Options& wanted = {}) {
    auto up = Function::bring_up(host, wanted);
    ASSERT_TRUE(up) << up.error().message;
    function = std::move(*up);
  }
  /// Memory filled with a pattern.
  DmaBuffer memory(std::size_t size, int seed = 0) {
    auto buffer = DmaBuffer::allocate(host, size);
    int i = seed;
    for (auto& byte : buffer->bytes()) byte = static_cast<std::byte>(i++ * 7);
    return std::move(*buffer);
  }

  Device device;
  InProcessHost host;
  Node* other = nullptr;
  std::unique_ptr<Function> function;
};

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() {
    node_.bring_up();
    context_ = std::move(*node_.function->make_context());
  }
  void finish(const util::Result<Completion>& completion) {
    ASSERT_TRUE(completion) << completion.error().message;
    const auto waited = context_->wait(*completion);
    ASSERT_TRUE(waited) << waited.error().message;
  }
  FunctionGroup group_;
  Node node_{group_};
  std::unique_ptr<Context> context_;
};

// W-05 W-08
TEST_F(DriverTest, BringsTheFunctionUpAndReadsItsCapabilities) {
  EXPECT_EQ(node_.function->capabilities().sfunc, node_.device.sfunc());
  EXPECT_EQ(node_.function->capabilities().max_context, 127);
  EXPECT_TRUE(node_.function->capabilities().atomics);
  EXPECT_TRUE(node_.function->take_errors().empty());
}

TEST_F(DriverTest, CopiesOfAllSizes) {
  auto from = node_.memory(300000, 1), to = node_.memory(300000, 2);
  for (const std::size_t size : {1, 64, 4096, 299999}) {
    finish(context_->copy({to.iova(1)}, {from.iova()}, size));
    EXPECT_TRUE(std::equal(from.bytes().begin(), from.bytes().begin() + static_cast<long>(size),
                           to.bytes().begin() + 1));
  }
}

TEST_F(DriverTest, FillsAnyRange) {
  auto to = node_.memory(100000, 2);
  std::vector<std::byte> expected(to.bytes().begin(), to.bytes().end());
  for (const auto& [at, size] :
       {std::pair{0, 1}, {4000, 200}, {4096, 8192}, {5, 90000}, {100, 4096}, {8200, 50}}) {
    finish(context_->fill({to.iova(static_cast<std::size_t>(at))}, std::byte(at + 1),
                          static_cast<std::uint64_t>(size)));
    std::fill_n(expected.begin() + at, size, std::byte(at + 1));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to.bytes().begin()))
        << at << ": all of the range, and nothing around it";
  }
}

TEST_F(DriverTest, AtomicsReturnTheOldValue) {
  auto at = node_.memory(64);
  util::store_le64(at.bytes().data(), 40);
  finish(context_->atomic(spec::atomic_subtype::DSC_ATM_UADD, {at.iova()}, 8, 2));
  EXPECT_EQ(context_->old_value(8), 40u);
  EXPECT_EQ(util::load_le64(at.bytes().data()), 42u);
  finish(context_->atomic(spec::atomic_subtype::DSC_ATM_CMPSWAP, {at.iova()}, 8, 42, 7));
  EXPECT_EQ(util::load_le64(at.bytes().data()), 7u);
}

TEST_F(DriverTest, ABatchCompletesWhenItsLastDoes) {
  auto memory = node_.memory(64);
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0});
  std::vector<Descriptor> batch;
  for (int i = 0; i < 100; ++i) {
    batch.push_back(Descriptor::atomic(spec::atomic_subtype::DSC_ATM_UADD, {memory.iova()}, 8, 1));
  }
  finish(context_->submit(batch));
  EXPECT_EQ(util::load_le64(memory.bytes().data()), 100u);
}

TEST_F(DriverTest, InterruptsEndAWait) {
  const auto akey = context_->akeys().use_interrupt(1);
  ASSERT_TRUE(akey);
  auto from = node_.memory(4096, 1), to = node_.memory(4096, 2);
  const std::array work{Descriptor::copy({to.iova()}, {from.iova()}, 4096)};
  const auto done = context_->submit(work, *akey);
  ASSERT_TRUE(done && context_->wait_interrupt(*done, 1));
  EXPECT_TRUE(std::equal(from.bytes().begin(), from.bytes().end(), to.bytes().begin()));
}

TEST(MsiDriverTest, InterruptsComeByMsiToo) {
  FunctionGroup group;
  Node node(group, {}, true);
  // Three vectors, for which MSI allocates a power of two.
  node.bring_up({.interrupt_vectors = 3, .patience = std::chrono::seconds(1)});
  const auto context = std::move(*node.function->make_context());
  for (const std::uint16_t vector : {1, 2}) {
    const auto akey = context->akeys().use_interrupt(vector);
    ASSERT_TRUE(akey);
    const std::array work{Descriptor::interrupt(*akey)};
    ASSERT_TRUE(context->enqueue(work));
    EXPECT_TRUE(context->wait_interrupt(vector, 1)) << vector;
  }
  EXPECT_FALSE(node.device.msix().enabled());
}

// W-19
TEST_F(DriverTest, OverlappingCopiesAreRejected) {
  auto memory = node_.memory(4096);
  EXPECT_FALSE(context_->copy({memory.iova(1)}, {memory.iova()}, 100));
  EXPECT_FALSE(context_->copy({memory.iova()}, {memory.iova(99)}, 100));
  EXPECT_FALSE(context_->copy({memory.iova(99)}, {memory.iova()}, 100));
  finish(context_->copy({memory.iova()}, {memory.iova(100)}, 100));
  finish(context_->copy({memory.iova(100)}, {memory.iova()}, 100));
}

// W-21 W-23
TEST_F(DriverTest, AFailureIsReportedInWordsAndRecovered) {
  auto to = node_.memory(4096);
  const auto completion = context_->copy({to.iova()}, {0x1000}, 64);
  ASSERT_TRUE(completion);
  const auto waited = context_->wait(*completion);
  ASSERT_FALSE(waited);
  EXPECT_NE(waited.error().message.find("ERRV_DSC_BUF"), std::string::npos)
      << waited.error().message;
  EXPECT_FALSE(
      context_->copy({to.iova()}, {to.iova(2048)}, 64).map_error([](auto) {}).has_value() &&
      context_->state() == spec::cxtv::CXTV_RUN);
  ASSERT_TRUE(context_->recover());
  finish(context_->copy({to.iova()}, {to.iova(2048)}, 64));
}

TEST_F(DriverTest, ManyContextsComeAndGo) {
  auto from = node_.memory(4096, 1), to = node_.memory(4096, 2);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Context>> contexts;
    for (int i = 0; i < 50; ++i) {
      auto made = node_.function->make_context(16);
      ASSERT_TRUE(made) << made.error().message;
      contexts.push_back(std::move(*made));
    }
    for (auto& context : contexts) {
      const auto done = context->copy({to.iova()}, {from.iova()}, 4096);
      ASSERT_TRUE(done && context->wait(*done));
    }
  }
  EXPECT_TRUE(node_.function->take_errors().empty());
}

// W-03 W-16, SDXI 5.2.1
TEST_F(DriverTest, SeveralProducersShareARingWithoutALock) {
  auto memory = node_.memory(64);
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0});
  constexpr int kThreads = 3, kEach = 2000;
  std::vector<std::byte> slots(64 * 64);
  alignas(8) std::array<std::byte, 8> read{}, write{};
  const Ring ring(slots, read.data(), write.data());
  std::atomic<int> running = kThreads;
  std::vector<std::thread> producers;
  for (int t = 0; t < kThreads; ++t) {
    producers.emplace_back([&] {
      const std::array two{Descriptor::nop(), Descriptor::nop()};
      for (int i = 0; i < kEach; ++i) {
        while (!ring.enqueue(two)) std::this_thread::yield();
      }
      --running;
    });
  }
  // The consumer side, as in SDXI 5.3.
  std::uint64_t index = 0;
  const auto next = [&] {
    auto* slot = reinterpret_cast<std::uint64_t*>(&slots[index % 64 * 64]);
    if (index == ring.write_index() || (__atomic_load_n(slot, __ATOMIC_ACQUIRE) & 1) == 0) {
      return false;
    }
    __atomic_fetch_and(slot, ~std::uint64_t{1}, __ATOMIC_RELEASE);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(read.data()), ++index, __ATOMIC_RELEASE);
    return true;
  };
  while (running > 0 || index != ring.write_index()) {
    if (!next()) std::this_thread::yield();
  }
  for (auto& thread : producers) thread.join();
  EXPECT_EQ(index, std::uint64_t{kThreads} * kEach * 2);
}

TEST(CrossFunctionTest, OneFunctionCopiesFromAnotherWithAnRKey) {
  FunctionGroup group;
  Node a(group), b(group);
  a.other = &b;
  b.other = &a;
  a.bring_up();
  b.bring_up();
  auto context = std::move(*a.function->make_context());
  auto here = a.memory(8192, 1), there = b.memory(8192, 2);
  const auto rkey = b.function->grant(a.function->capabilities().sfunc);
  ASSERT_TRUE(rkey) << rkey.error().message;
  const auto akey = context->akeys().reach(b.function->capabilities().sfunc, *rkey);
  ASSERT_TRUE(akey);
  auto done = context->copy({here.iova()}, {there.iova(), *akey}, 8192);
  ASSERT_TRUE(done && context->wait(*done));
  EXPECT_TRUE(std::equal(here.bytes().begin(), here.bytes().end(), there.bytes().begin()));
  ASSERT_TRUE(b.function->revoke(*rkey));
  done = context->copy({here.iova()}, {there.iova(), *akey}, 8192);
  ASSERT_TRUE(done);
  EXPECT_FALSE(context->wait(*done));
  EXPECT_TRUE(b.function->take_errors().empty());
}

}  // namespace
}  // namespace softhca::driver::sdxi
