// The loop of `softhca serve`: clients' messages, the functions' work, the fabric between them, in
// one thread, until SIGINT or SIGTERM.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pcie/function.h"
#include "util/event_loop.h"
#include "util/result.h"
#include "vfio_user/adaptive_poll.h"

namespace softhca::vfio_user {

class ServeLoop {
 public:
  struct Options {
    /// How long to look for another message after one, where that has paid before (AdaptivePoll).
    /// 0: sleep at once.
    util::Duration poll = std::chrono::microseconds(20);
  };

  static util::Result<std::unique_ptr<ServeLoop>> create(const Options& options);
  static util::Result<std::unique_ptr<ServeLoop>> create() { return create(Options{}); }

  /// For servers, and for a fabric's sockets.
  util::EventLoop& events() { return *events_; }

  /// Calls function.run() whenever there may be work. The function outlives the loop.
  void add(pcie::Function& function) { functions_.push_back(&function); }
  /// Called after the functions have run: moves what they sent to its receivers. True if anything
  /// moved, and then the functions run again.
  void set_after_run(std::function<bool()> hook) { after_run_ = std::move(hook); }

  /// Until stop(), SIGINT or SIGTERM. Signals end the loop only if stop_on_signals() of events()
  /// was called.
  void run();
  /// From any thread.
  void stop() { events_->stop(); }

  /// One turn: everything that is ready now, then at most one sleep, until `limit` or earlier.
  void turn(util::Time limit);

 private:
  ServeLoop(const Options& options, std::unique_ptr<util::EventLoop> events)
      : poll_(options.poll), events_(std::move(events)) {}

  util::Time run_functions();

  AdaptivePoll poll_;
  std::unique_ptr<util::EventLoop> events_;
  std::vector<pcie::Function*> functions_;
  std::function<bool()> after_run_;
};

}  // namespace softhca::vfio_user
