// The loop that serves functions: turns, shares, frames, sleep.
#include "vfio_user/serve_loop.h"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "pcie/function.h"
#include "util/inspect.h"
#include "vfio_user/wakeup_meter.h"

namespace softhca {
namespace {

TEST(ServeLoop, EndsWhenStoppedFromAnotherThread) {
  using std::chrono_literals::operator""us;
  using std::chrono_literals::operator""s;
  using Options = vfio_user::ServeLoop::Options;
  for (const auto& options : {Options{}, Options{.poll = 50us}}) {
    const std::shared_ptr loop = vfio_user::ServeLoop::create(options).value();
    std::promise<void> promise;
    const auto ended = promise.get_future();
    // If the loop does not end, it is leaked with everything it needs.
    std::thread([loop, over = std::move(promise)]() mutable {
      loop->run();
      over.set_value();
    }).detach();
    EXPECT_EQ(ended.wait_for(1000us), std::future_status::timeout) << "it was not stopped yet";
    loop->stop();
    EXPECT_EQ(ended.wait_for(20s), std::future_status::ready);
  }
}

class Timer final : public pcie::Function {
 public:
  Timer()
      : Function("timer", {}, std::array{pcie::Bar{.size = 4096}},
                 {.vectors = 1, .bar = 0, .table_offset = 0, .pba_offset = 0x800}) {}
  util::Time run_device(util::Time now) override {
    if (due == util::Time{}) due = now + std::chrono::milliseconds(5);
    if (now < due) return due;
    if (fired_at == util::Time{}) fired_at = now;
    return now;  // otherwise the loop would sleep until its limit
  }
  util::Time due{};
  util::Time fired_at{};

 protected:
  void read_register(unsigned, std::uint64_t, std::span<std::byte>) override {}
  void write_register(unsigned, std::uint64_t, std::span<const std::byte>) override {}
  void reset_device() override {}
};

/// Always has more work, in pieces of a fixed cost.
class Busy final : public pcie::Function {
 public:
  explicit Busy(std::int64_t cost)
      : Function("busy", {}, std::array{pcie::Bar{.size = 4096}},
                 {.vectors = 1, .bar = 0, .table_offset = 0, .pba_offset = 0x800}),
        cost_(cost) {}
  util::Time run_device(util::Time) override {
    while (!work().spent()) {
      work().charge(cost_);
      ++pieces;
    }
    const auto end = vfio_user::thread_time() + takes;
    while (vfio_user::thread_time() < end) {
    }
    return util::Time::min();
  }
  util::Duration takes{};  ///< processor time that each run() takes
  /// Charges work, as an arriving frame does.
  void owe(std::int64_t units) {
    work().charge(units);
    frames_at = noted_time();
  }
  util::Time frames_at{};  ///< its time when the last frame arrived
  std::uint64_t pieces = 0;

 protected:
  void read_register(unsigned, std::uint64_t, std::span<std::byte>) override {}
  void write_register(unsigned, std::uint64_t, std::span<const std::byte>) override {}
  void reset_device() override {}

 private:
  std::int64_t cost_;
};

TEST(ServeLoop, ATurnEndsWhenItsWorkIsDone) {
  auto loop = vfio_user::ServeLoop::create().value();
  Busy busy(1000);
  loop->add(busy);
  for (std::uint64_t turn = 1; turn <= 5; ++turn) {
    loop->turn(util::Time{});
    EXPECT_LE(busy.pieces, turn * (vfio_user::ServeLoop::kTurnWork / 1000 + 1));
    EXPECT_GE(busy.pieces, turn * (vfio_user::ServeLoop::kTurnWork / 1000 - 25));
  }
}

TEST(ServeLoop, FunctionsShareTheirTurnsByTheWorkThatTheyDo) {
  auto loop = vfio_user::ServeLoop::create().value();
  std::vector<std::unique_ptr<Busy>> functions;
  // One function whose smallest piece is many times its share, and others.
  for (const std::int64_t cost : {2'000'000, 1000, 1000, 5000, 100}) {
    functions.push_back(std::make_unique<Busy>(cost));
    loop->add(*functions.back());
  }
  for (int i = 0; i < 2000; ++i) loop->turn(util::Time{});
  const auto share = functions[1]->work_done();
  for (const auto& function : functions) {
    EXPECT_NEAR(static_cast<double>(function->work_done()) / static_cast<double>(share), 1, 0.05);
  }
}

TEST(ServeLoop, AFunctionPaysItsDebtBeforeItRuns) {
  auto loop = vfio_user::ServeLoop::create().value();
  Busy busy(1000), debtor(1000);
  loop->add(busy);
  loop->add(debtor);
  constexpr std::int64_t kDebt = 40 * vfio_user::ServeLoop::kRoundWork;
  debtor.owe(kDebt);
  while (debtor.pieces == 0) loop->turn(util::Time{});
  EXPECT_NEAR(static_cast<double>(busy.pieces * 1000), kDebt, kDebt / 10);
}

/// Frames that cost their receiver work.
class CostlyFabric final : public vfio_user::Fabric {
 public:
  CostlyFabric(Busy& receiver, std::int64_t cost) : receiver_(receiver), cost_(cost) {}
  bool has_frames() override { return frames != 0; }
  void deliver(std::size_t most) override {
    const auto n = std::min(most, frames);
    receiver_.owe(static_cast<std::int64_t>(n) * cost_);
    frames -= n;
    delivered += n;
    work_ += static_cast<std::int64_t>(n) * own_cost;
  }
  std::int64_t take_work() override { return std::exchange(work_, 0); }
  std::size_t frames = 0;
  std::size_t delivered = 0;
  std::int64_t own_cost = 0;  ///< of a frame, that no function pays

 private:
  Busy& receiver_;
  std::int64_t cost_;
  std::int64_t work_ = 0;
};

TEST(ServeLoop, AllFramesAreDeliveredBeforeAFunctionRunsAgain) {
  auto loop = vfio_user::ServeLoop::create().value();
  Busy receiver(1000), other(1000);
  CostlyFabric fabric(receiver, vfio_user::ServeLoop::kTurnWork);
  loop->add(receiver);
  loop->add(other);
  loop->set_fabric(fabric);
  fabric.frames = 100;
  loop->turn(util::Time{});
  EXPECT_GE(fabric.delivered, 1u);
  EXPECT_LT(fabric.delivered, 100u) << "a turn has an end";
  EXPECT_EQ(other.pieces, 0u);
  while (fabric.frames != 0) loop->turn(util::Time{});
  EXPECT_EQ(other.pieces, 0u) << "no memory that a frame refers to was withdrawn";
  loop->turn(util::Time{});
  EXPECT_GT(other.pieces, 0u);
}

// A frame that ends a sleep starts timers, which begin then and not with the turn before the sleep.
TEST(ServeLoop, AFunctionHasTheTimeOfTheTurnThatBringsItsFrames) {
  auto loop = vfio_user::ServeLoop::create().value();
  Busy receiver(1000);
  CostlyFabric fabric(receiver, 1);
  loop->add(receiver);
  loop->set_fabric(fabric);
  for (unsigned i = 0; i != 3; ++i) {
    const auto begin = util::monotonic_now();
    fabric.frames = 1;
    loop->turn(util::Time{});
    EXPECT_EQ(fabric.frames, 0u);
    EXPECT_GE(receiver.frames_at, begin);
  }
}

TEST(ServeLoop, FramesThatCostTooMuchEndTheTurnSoon) {
  auto loop = vfio_user::ServeLoop::create().value();
  Busy receiver(1000);
  CostlyFabric fabric(receiver, vfio_user::ServeLoop::kTurnWork);
  loop->add(receiver);
  loop->set_fabric(fabric);
  fabric.frames = 100;
  loop->turn(util::Time{});
  EXPECT_LE(fabric.delivered, 8u);
}

TEST(ServeLoop, DeliveriesThatNoFunctionPaysForEndTheTurnSoon) {
  auto loop = vfio_user::ServeLoop::create().value();
  Busy receiver(1000);
  CostlyFabric fabric(receiver, 0);
  fabric.own_cost = vfio_user::ServeLoop::kTurnWork / 20;
  loop->add(receiver);
  loop->set_fabric(fabric);
  for (std::size_t turn = 1; turn <= 3; ++turn) {
    fabric.frames = 100;
    loop->turn(util::Time{});
    EXPECT_GE(fabric.delivered, turn * 20);
    EXPECT_LE(fabric.delivered, turn * (20 + 8));
  }
}

TEST(ServeLoop, MessagesAreWorkOfTheirTurn) {
  auto loop = vfio_user::ServeLoop::create().value();
  os::EventLoop::Notice message(loop->events(), [&] { loop->events().budget().charge(1234); });
  message.raise();
  loop->turn(util::Time{});
  loop->turn(util::Time{});
  util::InspectNode node("loop");
  loop->inspect(node);
  EXPECT_NE(node.to_text().find("longest_work: 1234"), std::string::npos) << node.to_text();
}

TEST(ServeLoop, ReportsHowLongItsTurnsAre) {
  auto loop = vfio_user::ServeLoop::create({.measure = true}).value();
  Busy busy(1000);
  loop->add(busy);
  for (int i = 0; i < 3; ++i) loop->turn(util::Time{});
  util::InspectNode node("loop");
  loop->inspect(node);
  EXPECT_NE(node.to_text().find("turns: 3"), std::string::npos) << node.to_text();
  EXPECT_EQ(node.to_text().find("longest_work: 0"), std::string::npos) << node.to_text();
  EXPECT_EQ(node.to_text().find("longest_processor_ns: 0"), std::string::npos) << node.to_text();
}

TEST(ServeLoop, CountsTheTurnsThatWereLong) {
  auto loop = vfio_user::ServeLoop::create({.measure = true}).value();
  Busy busy(1000);
  busy.takes = std::chrono::milliseconds(10);
  loop->add(busy);
  for (int i = 0; i < 3; ++i) loop->turn(util::Time{});
  util::InspectNode node("loop");
  loop->inspect(node);
  // The first turn has no previous turn to measure from.
  EXPECT_NE(node.to_text().find("turns_above_2_ms: 2"), std::string::npos) << node.to_text();
}

TEST(ServeLoop, CallsAFunctionWhenItAskedToBeCalled) {
  for (const auto poll : {std::chrono::microseconds(0), std::chrono::microseconds(200)}) {
    auto loop = vfio_user::ServeLoop::create({.poll = poll}).value();
    Timer timer;
    loop->add(timer);
    const auto limit = util::monotonic_now() + std::chrono::seconds(20);
    unsigned turns = 0;
    for (; timer.fired_at == util::Time{} && util::monotonic_now() < limit; ++turns) {
      loop->turn(limit);
    }
    EXPECT_GE(timer.fired_at, timer.due);
    EXPECT_LT(timer.fired_at, limit) << "it slept on";
    // It may get its processor back so shortly before that it polls for a few turns.
    EXPECT_LT(turns, 100u) << "it slept until then";
  }
}

}  // namespace
}  // namespace softhca
