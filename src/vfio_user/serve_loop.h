// The loop of `softhca serve`, in one thread, until SIGINT or SIGTERM: clients' messages, the
// functions' work, and the fabric between them.
//
// A turn is short whatever guests request: messages, functions and frames are charged to a budget
// (util::WorkBudget), and what exceeds it waits for the next turn. Functions have equal shares, in
// rounds; one that exceeded its share is skipped until later shares have made up for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "os/adaptive_poll.h"
#include "os/event_loop.h"
#include "pcie/function.h"
#include "util/inspect.h"
#include "util/result.h"
#include "vfio_user/turn_times.h"

namespace softhca::vfio_user {

/// Carries frames between the functions of a loop.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual bool has_frames() = 0;
  virtual void deliver(std::size_t frames) = 0;
  /// Work of these deliveries, since the last call, that no function has counted.
  virtual std::int64_t take_work() { return 0; }
  /// Reports the current time. Returns when to call again.
  virtual util::Time pass_time(util::Time now) {
    (void)now;
    return util::kNever;
  }
};

class ServeLoop {
 public:
  struct Options {
    /// How long to poll after a message, if earlier polls have found messages (AdaptivePoll). 0:
    /// sleep immediately.
    util::Duration poll = std::chrono::microseconds(20);
    /// Read the thread's clock in each turn, for inspect(). It has a small cost.
    bool measure = false;
  };

  /// Most work of functions in one turn, and of one function in one round.
  static constexpr std::int64_t kTurnWork = 100'000;
  static constexpr std::int64_t kRoundWork = 25'000;

  static util::Result<std::unique_ptr<ServeLoop>> create(const Options& options);
  static util::Result<std::unique_ptr<ServeLoop>> create() { return create(Options{}); }

  /// For servers, and for the sockets of a fabric.
  os::EventLoop& events() { return *events_; }

  /// Calls function.run() whenever it may have work. The function outlives the loop.
  void add(pcie::Function& function) { functions_.push_back({&function}); }
  /// Sets the fabric between the functions; it outlives the loop. All its frames are delivered
  /// before a function runs again.
  void set_fabric(Fabric& fabric) { fabric_ = &fabric; }

  /// Runs until stop(), SIGINT or SIGTERM. Signals end the loop only if stop_on_signals() of
  /// events() was called.
  void run();
  /// Callable from any thread.
  void stop() { events_->stop(); }

  /// One turn: handles everything that is ready now, then sleeps at most once, until `limit` at
  /// most.
  void turn(util::Time limit);

  /// Adds statistics of the loop's turns.
  void inspect(util::InspectNode& out) const;

 private:
  struct Served {
    pcie::Function* function;
    std::int64_t counted = 0;  ///< its work already charged
  };

  ServeLoop(const Options& options, std::unique_ptr<os::EventLoop> events)
      : poll_(options.poll), times_(options.measure), events_(std::move(events)) {}

  util::Time run_functions();
  util::Time run_round(util::Time now, util::WorkBudget& budget);
  static util::Time run(pcie::Function& function, util::Time now);
  bool deliver(util::Time now, util::WorkBudget& budget);
  void count(Served& served, util::WorkBudget& budget);

  os::AdaptivePoll poll_;
  TurnTimes times_;
  std::unique_ptr<os::EventLoop> events_;
  std::vector<Served> functions_;
  std::size_t first_ = 0;  ///< index in functions_ of the one that runs first
  Fabric* fabric_ = nullptr;
};

}  // namespace softhca::vfio_user
