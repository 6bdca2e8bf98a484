// The server's handle of a process that serves some of its devices. It starts and restarts the
// process, carries its frames, sends it questions, and logs why it ended.
//
// The process cannot make the server block, or use unbounded memory or time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "os/alarm.h"
#include "os/janitor.h"
#include "server/isolate/channel.h"
#include "server/isolate/log_pipe.h"
#include "server/isolate/process_options.h"
#include "util/inspect.h"

namespace softhca::server {

class GuestProcess {
 public:
  /// A NIC of the process, and its switch, which must outlive this.
  struct Nic {
    std::string name;
    fabric::Switch* fabric;
  };
  struct Config {
    std::string program;             ///< path; its arguments are those of process_options.h
    std::string name;                ///< names of its devices, for the log
    ProcessOptions options;          ///< same at each start
    std::vector<Nic> nics;           ///< in the order of the devices
    os::Janitor* janitor = nullptr;  ///< closes what the process sends; outlives this
    /// Adds the options that change between starts: fault rules and listeners.
    std::function<util::Result<void>(ProcessOptions&)> prepare;
  };
  /// Time limit for an answer.
  static constexpr auto kPatience = std::chrono::seconds(3);

  static util::Result<std::unique_ptr<GuestProcess>> start(os::EventLoop& loop, Config config);
  ~GuestProcess();
  GuestProcess(const GuestProcess&) = delete;
  GuestProcess& operator=(const GuestProcess&) = delete;

  /// Whether its devices serve their sockets.
  bool ready() const { return ready_; }
  /// Whether the process has ended; its next start is scheduled.
  bool gone() const { return pid_ <= 0; }
  unsigned starts() const { return starts_; }
  const std::string& name() const { return config_.name; }

  using Answer = std::function<void(std::string answer)>;
  /// Sends a request of server/control.h. `answer` is called now or later; without an answer it
  /// gets an error.
  void ask(std::string_view request, Answer answer);

  /// Transmits frames from its NICs, at most `frames` for each. Returns their number.
  std::size_t receive(std::size_t frames);
  /// Wakes the process if frames wait for it.
  void settle();
  /// False if frames are waiting already.
  bool prepare_to_sleep();

  void inspect(util::InspectNode& out) const;

  /// Asks the process to end. The destructor enforces it.
  void stop();

 private:
  struct Question {
    util::Time deadline;
    Answer answer;
  };

  GuestProcess(os::EventLoop& loop, Config config);

  util::Result<void> spawn();
  util::Result<void> watch();
  void handle_message(std::uint32_t number, std::string_view text);
  void kill(const char* reason);
  void clear_wake();
  void handle_end();
  void clear();
  void fail_due(util::Time now);
  void restart();

  os::EventLoop& loop_;
  Config config_;
  pid_t pid_ = -1;
  os::UniqueFd pidfd_;
  os::UniqueFd wake_socket_;  ///< one end of an os::WakeSocket
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<LogPipe> log_;
  std::vector<std::unique_ptr<fabric::RingPort>> links_;
  std::unique_ptr<os::Alarm> restart_;
  std::unique_ptr<os::Alarm> deadline_;
  std::map<std::uint32_t, Question> questions_;
  std::uint32_t last_question_ = 0;
  bool ready_ = false;
  unsigned starts_ = 0;
  util::Time started_{};
  util::Duration pause_{};        ///< before the next start
  const char* reason_ = nullptr;  ///< why the server killed it
};

}  // namespace softhca::server
