#include "vfio_user/serve_loop.h"

#include <algorithm>

namespace softhca::vfio_user {
namespace {

/// Rounds of work between two looks at the sockets: clients with a waiting vCPU come before a pair
/// of functions that keep each other busy.
constexpr unsigned kRoundsPerTurn = 16;

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
  auto next = run_functions();
  next = std::min(next, limit);
  if (options_.poll > util::Duration::zero() && spin(next)) return;
  events_->run_once(next);
}

/// When the functions must run again; Time::min() if there is work left now.
util::Time ServeLoop::run_functions() {
  for (unsigned round = 0; round < kRoundsPerTurn; ++round) {
    const auto now = util::monotonic_now();
    auto next = util::kNever;
    for (auto* function : functions_) next = std::min(next, function->run(now));
    const bool moved = after_run_ && after_run_();
    if (!moved && next > now) return next;
  }
  return util::Time::min();
}

/// Looks for events without sleeping, for as long as the options say. True if there were any, or if
/// `until` has come.
bool ServeLoop::spin(util::Time until) {
  const auto start = util::monotonic_now();
  const auto end = std::min(until, start + options_.poll);
  do {
    if (events_->run_once(util::Time::min()) != 0) return true;
  } while (util::monotonic_now() < end && !events_->stopped());
  return end == until;
}

}  // namespace softhca::vfio_user
