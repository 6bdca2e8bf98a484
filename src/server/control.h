// The commands of a running server's control socket: inspection of its functions, and management of
// fault rules.
//
//   inspect [--json] [--from NUMBER] [--count NUMBER] [FUNCTION]
//   fault add RULE | fault list | fault remove NUMBER | fault clear
//
// Rules of the network are network_rules.h's.
//
// The answer's first line is "ok", or "error: " and the reason; the rest is for people.
//
// Functions may be large. So an inspection is built over several turns of the loop, a part in each,
// while the functions go on working.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "control/control_socket.h"
#include "control/inspect_request.h"
#include "hca/faults.h"
#include "os/event_loop.h"
#include "pcie/function.h"
#include "sdxi/faults.h"
#include "server/fault_rules.h"
#include "server/network_rules.h"
#include "util/clock.h"
#include "util/inspection.h"
#include "util/result.h"
#include "vfio_user/serve_loop.h"

namespace softhca::server {

class Switches;

/// The objects that commands act on; all must outlive the server.
struct ControlTargets {
  std::vector<pcie::Function*> functions;
  sdxi::Faults* faults;
  hca::Faults* hca_faults = nullptr;           ///< null: HCAs take no fault rules
  NetworkRules* network = nullptr;             ///< null: links take no rules
  const vfio_user::ServeLoop* loop = nullptr;  ///< null: not shown
  const Switches* switches = nullptr;          ///< null: no port to a network of the host
};

class ServerControl {
 public:
  /// Work on all answers together in one turn of the loop (util::WorkBudget).
  static constexpr std::int64_t kTurnWork = 25'000;
  /// Time limit for building an answer. The answer says what it had to omit.
  static constexpr auto kPatience = std::chrono::seconds(2);
  /// Maximum bytes of an answer about one function, and about all, including closing lines.
  static constexpr std::size_t kBytes = 1 << 20;
  static constexpr std::size_t kBytesOfAll = 4 << 20;
  /// Maximum waiting answers. They are built one at a time, in order, so only one takes memory.
  static constexpr std::size_t kAnswersMax = 512;

  /// `loop` must outlive this.
  ServerControl(os::EventLoop& loop, ControlTargets targets)
      : loop_(loop),
        targets_(std::move(targets)),
        rules_(targets_.functions, *targets_.faults, targets_.hca_faults),
        next_(loop, [this] { turn(); }) {}

  void answer(std::string_view request, const control::ControlSocket::Reply& reply);

 private:
  struct Answer {
    std::string function;  ///< empty: all
    util::Inspection inspection;
    util::Time deadline;
    control::ControlSocket::Reply reply;
  };

  void inspect(std::string_view words, const control::ControlSocket::Reply& reply);
  bool is_known(std::string_view name) const;
  /// Builds a part of the first answer.
  void turn();
  /// True when it is complete.
  bool go_on(Answer& answer);
  void show(const Answer& answer, util::Inspection& out) const;

  os::EventLoop& loop_;
  const ControlTargets targets_;
  FaultRules rules_;
  std::deque<Answer> answers_;
  os::EventLoop::Notice next_;
};

/// Sends a request to the server at `path`. Returns the answer, or the server's error.
util::Result<std::string> ask_server(const std::string& path, std::string_view request);
/// The same, but prints the answer, and errors on stderr. Returns the exit status.
int ask_and_print(const std::string& path, std::string_view request);

}  // namespace softhca::server
