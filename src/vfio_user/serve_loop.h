// The loop of `softhca serve`: clients' messages, the functions' work, the fabric between them, in
// one thread, until SIGINT or SIGTERM.
//
// A turn is short whatever guests ask for: messages, functions and frames are work within a budget
// (util::WorkBudget), and what does not fit waits for the next turn. Functions have equal shares of
// it, in rounds; one that took more than its share is passed over until it has paid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pcie/function.h"
#include "util/event_loop.h"
#include "util/inspect.h"
#include "util/result.h"
#include "vfio_user/adaptive_poll.h"
#include "vfio_user/turn_times.h"

namespace softhca::vfio_user {

/// What carries frames between the functions of a loop.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual bool has_frames() = 0;
  /// Delivers at most `frames` of them.
  virtual void deliver(std::size_t frames) = 0;
  /// Lets time pass. Returns when to call again.
  virtual util::Time pass_time(util::Time now) {
    (void)now;
    return util::kNever;
  }
};

class ServeLoop {
 public:
  struct Options {
    /// How long to look for another message after one, where that has paid before (AdaptivePoll).
    /// 0: sleep at once.
    util::Duration poll = std::chrono::microseconds(20);
    /// Look at the clock of the thread in each turn, for inspect(). It costs a little.
    bool measure = false;
  };

  /// Work of functions in one turn, and of one function in one round.
  static constexpr std::int64_t kTurnWork = 100'000;
  static constexpr std::int64_t kRoundWork = 25'000;

  static util::Result<std::unique_ptr<ServeLoop>> create(const Options& options);
  static util::Result<std::unique_ptr<ServeLoop>> create() { return create(Options{}); }

  /// For servers, and for a fabric's sockets.
  util::EventLoop& events() { return *events_; }

  /// Calls function.run() whenever there may be work. The function outlives the loop.
  void add(pcie::Function& function) { functions_.push_back({&function}); }
  /// What joins the functions; it outlives the loop. All of its frames are delivered before a
  /// function runs again.
  void set_fabric(Fabric& fabric) { fabric_ = &fabric; }

  /// Until stop(), SIGINT or SIGTERM. Signals end the loop only if stop_on_signals() of events()
  /// was called.
  void run();
  /// From any thread.
  void stop() { events_->stop(); }

  /// One turn: everything that is ready now, then at most one sleep, until `limit` or earlier.
  void turn(util::Time limit);

  /// How its turns went.
  void inspect(util::InspectNode& out) const;

 private:
  struct Served {
    pcie::Function* function;
    std::int64_t counted = 0;  ///< of its work, what was taken into account
  };

  ServeLoop(const Options& options, std::unique_ptr<util::EventLoop> events)
      : poll_(options.poll), times_(options.measure), events_(std::move(events)) {}

  util::Time run_functions();
  util::Time run_round(util::Time now, util::WorkBudget& budget);
  static util::Time run(pcie::Function& function, util::Time now);
  bool deliver(util::WorkBudget& budget);
  void count(Served& served, util::WorkBudget& budget);

  AdaptivePoll poll_;
  TurnTimes times_;
  std::unique_ptr<util::EventLoop> events_;
  std::vector<Served> functions_;
  std::size_t first_ = 0;  ///< of functions_, whose run() comes first
  Fabric* fabric_ = nullptr;
};

}  // namespace softhca::vfio_user
