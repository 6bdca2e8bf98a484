#include "vfio_user/serve_loop.h"

#include <algorithm>
#include <new>

namespace softhca::vfio_user {
namespace {

/// Rounds between two polls of the sockets: clients with a waiting vCPU have priority over two
/// functions that keep each other busy.
constexpr unsigned kRoundsPerTurn = 16;
/// Cost of a run() that finds nothing to do.
constexpr std::int64_t kCallWork = 100;
/// A sleep takes at least this long to end.
constexpr auto kShortestSleep = std::chrono::microseconds(5);
/// Frames delivered between two charges of their cost.
constexpr std::size_t kFramesAtOnce = 8;

}  // namespace

util::Result<std::unique_ptr<ServeLoop>> ServeLoop::create(const Options& options) {
  auto events = os::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  return std::unique_ptr<ServeLoop>(new ServeLoop(options, std::move(*events)));
}

void ServeLoop::run() {
  while (!events_->stopped()) turn(util::kNever);
}

void ServeLoop::turn(util::Time limit) {
  auto next = std::min(run_functions(), limit);
  const auto now = util::monotonic_now();
  if (poll_.look(now) || next < now + kShortestSleep) next = util::Time::min();
  times_.end_turn();
  const auto called = events_->run_once(next);
  times_.add_work(events_->budget().done());
  if (called != 0) poll_.message(events_->last_called(), util::monotonic_now());
}

/// Returns when the functions must run again; Time::min() if there is work left now.
util::Time ServeLoop::run_functions() {
  util::WorkBudget budget(kTurnWork);
  auto next = util::Time::min();
  for (unsigned round = 0; round < kRoundsPerTurn; ++round) {
    const auto now = util::monotonic_now();
    // Frames first: they refer to memory that a running function may free.
    const bool delivered = deliver(now, budget);
    next = delivered ? run_round(now, budget) : util::Time::min();
    const bool frames = fabric_ != nullptr && fabric_->has_frames();
    if (delivered && !frames && next > now) break;
    next = util::Time::min();
    if (budget.spent()) break;
    poll_.work(now);
  }
  times_.add_work(budget.done());
  return next;
}

util::Time ServeLoop::run(pcie::Function& function, util::Time now) {
  try {
    return function.run(now, kRoundWork);
  } catch (const std::bad_alloc&) {
    if (!function.fail()) throw;
    return util::Time::min();
  }
}

/// Runs each function once, beginning with those that had no turn yet.
util::Time ServeLoop::run_round(util::Time now, util::WorkBudget& budget) {
  auto next = fabric_ == nullptr ? util::kNever : fabric_->pass_time(now);
  for (std::size_t i = 0; i != functions_.size(); ++i) {
    if (budget.spent()) return util::Time::min();
    auto& served = functions_[first_];
    first_ = first_ + 1 == functions_.size() ? 0 : first_ + 1;
    next = std::min(next, run(*served.function, now));
    budget.charge(kCallWork);
    count(served, budget);
  }
  return next;
}

/// False if frames are left for the next turn.
bool ServeLoop::deliver(util::Time now, util::WorkBudget& budget) {
  if (fabric_ == nullptr || !fabric_->has_frames()) return true;
  // The frames may have ended a sleep, and the functions last ran before it.
  for (auto& served : functions_) served.function->note_time(now);
  while (fabric_->has_frames()) {
    if (budget.spent()) return false;
    fabric_->deliver(kFramesAtOnce);
    budget.charge(fabric_->take_work());
    for (auto& served : functions_) count(served, budget);
  }
  return true;
}

void ServeLoop::count(Served& served, util::WorkBudget& budget) {
  const auto done = served.function->work_done();
  budget.charge(done - served.counted);
  served.counted = done;
}

void ServeLoop::inspect(util::InspectNode& out) const { times_.inspect(out); }

}  // namespace softhca::vfio_user
