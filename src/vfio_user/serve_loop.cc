#include "vfio_user/serve_loop.h"

#include <algorithm>

namespace softhca::vfio_user {
namespace {

/// Rounds of work between two looks at the sockets: clients with a waiting vCPU come before a pair
/// of functions that keep each other busy.
constexpr unsigned kRoundsPerTurn = 16;
/// Rounds that last are fewer: a register read of a third function waits for all of them.
constexpr auto kWorkPerTurn = std::chrono::microseconds(100);

}  // namespace

util::Result<std::unique_ptr<ServeLoop>> ServeLoop::create(const Options& options) {
  auto events = util::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  return std::unique_ptr<ServeLoop>(new ServeLoop(options, std::move(*events)));
}

void ServeLoop::run() {
  while (!events_->stopped()) turn(util::kNever);
}

void ServeLoop::turn(util::Time limit) {
  auto next = std::min(run_functions(), limit);
  if (poll_.look(util::monotonic_now())) next = util::Time::min();
  if (events_->run_once(next) != 0) poll_.message(events_->last_called(), util::monotonic_now());
}

/// When the functions must run again; Time::min() if there is work left now.
util::Time ServeLoop::run_functions() {
  auto end = util::kNever;
  for (unsigned round = 0; round < kRoundsPerTurn; ++round) {
    const auto now = util::monotonic_now();
    if (round == 0) end = now + kWorkPerTurn;
    if (now >= end) break;
    auto next = util::kNever;
    for (auto* function : functions_) next = std::min(next, function->run(now));
    const bool moved = after_run_ && after_run_();
    if (!moved && next > now) return next;
    poll_.work(now);
  }
  return util::Time::min();
}

}  // namespace softhca::vfio_user
