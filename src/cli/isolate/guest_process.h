// The server's handle of a process that serves some of its devices: starts it, carries its frames,
// asks it things, says why it ended, and starts it anew.
//
// Nothing that the process does makes the server wait, or take more than a bounded amount of
// memory or time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/isolate/channel.h"
#include "cli/isolate/log_pipe.h"
#include "cli/isolate/process_options.h"
#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "util/alarm.h"
#include "util/doorbell.h"
#include "util/inspect.h"

namespace softhca::cli {

class GuestProcess {
 public:
  /// A NIC of the process, and the switch that it is plugged into, which outlives this.
  struct Nic {
    std::string name;
    fabric::Switch* fabric;
  };
  struct Config {
    std::string program;     ///< path; it is given the words of process_options.h
    std::string name;        ///< for the log: its devices
    ProcessOptions options;  ///< what is the same at each start
    std::vector<Nic> nics;   ///< in the order of the devices
    /// Adds what is another at each start: the rules of faults, the listeners.
    std::function<util::Result<void>(ProcessOptions&)> prepare;
  };
  /// How long it may take to answer.
  static constexpr auto kPatience = std::chrono::seconds(3);

  static util::Result<std::unique_ptr<GuestProcess>> start(util::EventLoop& loop, Config config);
  ~GuestProcess();
  GuestProcess(const GuestProcess&) = delete;
  GuestProcess& operator=(const GuestProcess&) = delete;

  /// Its devices serve their sockets.
  bool ready() const { return ready_; }
  /// It does not run; the next start is set.
  bool gone() const { return pid_ <= 0; }
  unsigned starts() const { return starts_; }
  const std::string& name() const { return config_.name; }

  using Answer = std::function<void(std::string answer)>;
  /// Asks for an answer of control.h. It comes later or at once; if there is none, it is an error.
  void ask(std::string_view request, Answer answer);

  /// Transmits frames that have come from its NICs, at most `frames` for each. Returns how many.
  std::size_t receive(std::size_t frames);
  /// Wakes it, if it is to be.
  void settle();
  /// False if there are frames already.
  bool prepare_to_sleep();

  void inspect(util::InspectNode& out) const;

  /// Tells it to end. The destructor sees to it that it has.
  void stop();

 private:
  struct Question {
    util::Time deadline;
    Answer answer;
  };

  GuestProcess(util::EventLoop& loop, Config config);

  util::Result<void> spawn();
  util::Result<void> watch();
  void hear(std::uint32_t number, std::string_view text);
  /// Ends it because of what it did.
  void kill(const char* reason);
  void handle_end();
  void clear();
  void fail_due(util::Time now);
  void restart();

  util::EventLoop& loop_;
  Config config_;
  pid_t pid_ = -1;
  vfio_user::UniqueFd pidfd_;
  std::unique_ptr<util::Doorbell> doorbell_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<LogPipe> log_;
  std::vector<std::unique_ptr<fabric::RingPort>> links_;
  std::unique_ptr<util::Alarm> restart_;
  std::unique_ptr<util::Alarm> deadline_;
  std::map<std::uint32_t, Question> questions_;
  std::uint32_t last_question_ = 0;
  bool ready_ = false;
  unsigned starts_ = 0;
  util::Time started_{};
  util::Duration pause_{};        ///< before the next start
  const char* reason_ = nullptr;  ///< why we have ended it
};

}  // namespace softhca::cli
