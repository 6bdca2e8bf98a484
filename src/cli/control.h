// What a running server answers on its control socket: what its functions look like, and fault
// rules that come and go.
//
//   inspect [--json] [--from NUMBER] [--count NUMBER] [FUNCTION]
//   fault add RULE | fault list | fault remove NUMBER | fault clear
//
// The answer's first line is "ok", or "error: " and what is wrong; the rest is for people.
//
// Functions may be large: what inspect shows is put together over turns of the loop, a piece in
// each, beside the functions' own work, while these run on.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "cli/control_socket.h"
#include "cli/inspect_request.h"
#include "pcie/function.h"
#include "sdxi/faults.h"
#include "util/clock.h"
#include "util/event_loop.h"
#include "util/inspection.h"
#include "util/result.h"
#include "vfio_user/serve_loop.h"

namespace softhca::cli {

/// What a server's commands act on; all of it outlives the server.
struct ControlTargets {
  std::vector<pcie::Function*> functions;
  sdxi::Faults* faults;
  const vfio_user::ServeLoop* loop = nullptr;  ///< null: not told about
};

/// A rule for one of the functions that there are. Fails if it is about none of them.
util::Result<sdxi::FaultRule> parse_fault_for(const ControlTargets& targets, std::string_view text);

class Control {
 public:
  /// What one turn of the loop does for those who ask, all together (util::WorkBudget).
  static constexpr std::int64_t kTurnWork = 25'000;
  /// How long an answer may be put together; what is left out then, it says.
  static constexpr auto kPatience = std::chrono::seconds(2);
  /// The limits of an answer about one function and about all, in bytes, closing lines included.
  static constexpr std::size_t kBytes = 1 << 20;
  static constexpr std::size_t kBytesOfAll = 4 << 20;
  /// Answers that wait for their turn. One is put together at a time, in the order of the
  /// questions: so only one takes memory.
  static constexpr std::size_t kAnswersMax = 512;

  /// `loop` outlives this.
  Control(util::EventLoop& loop, ControlTargets targets)
      : loop_(loop), targets_(std::move(targets)), next_(loop, [this] { turn(); }) {}

  void answer(std::string_view request, const ControlSocket::Reply& reply);

 private:
  struct Answer {
    std::string function;  ///< empty: all
    util::Inspection inspection;
    util::Time deadline;
    ControlSocket::Reply reply;
  };

  void inspect(std::string_view words, const ControlSocket::Reply& reply);
  bool is_known(std::string_view name) const;
  /// A piece of the first answer.
  void turn();
  /// True at its end.
  bool go_on(Answer& answer);
  void show(const Answer& answer, util::Inspection& out) const;

  util::EventLoop& loop_;
  const ControlTargets targets_;
  std::deque<Answer> answers_;
  util::EventLoop::Notice next_;
};

/// Asks the server at `path`: its answer, or what it says is wrong.
util::Result<std::string> ask_server(const std::string& path, std::string_view request);
/// Asks and prints the answer, errors on stderr. The exit status.
int ask_and_print(const std::string& path, std::string_view request);

}  // namespace softhca::cli
