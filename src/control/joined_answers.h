// Combines answers of several processes, a part in each turn of the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "control/answers.h"
#include "control/control_socket.h"
#include "os/event_loop.h"

namespace softhca::control {

class JoinedAnswers {
 public:
  /// `loop` must outlive this.
  explicit JoinedAnswers(os::EventLoop& loop) : loop_(loop), next_(loop, [this] { turn(); }) {}

  /// Replies with all parts, in order, when they are combined.
  void join(std::vector<AnswerPart> parts, bool json, ControlSocket::Reply reply);

 private:
  /// Work in one turn (util::WorkBudget); the rest waits for the next turn.
  static constexpr std::int64_t kTurnWork = 25'000;
  /// Work for a part, besides that for its bytes.
  static constexpr std::int64_t kPartWork = 500;

  struct Joining {
    std::vector<AnswerPart> parts;
    bool json = false;
    std::size_t next = 0;                ///< index into parts
    std::optional<AnswerWriter> writer;  ///< of the current part
    std::string text;
    ControlSocket::Reply reply;
  };

  void turn();
  /// True when it is complete.
  bool go_on(Joining& joining);

  os::EventLoop& loop_;
  std::deque<Joining> joinings_;
  os::EventLoop::Notice next_;
};

}  // namespace softhca::control
