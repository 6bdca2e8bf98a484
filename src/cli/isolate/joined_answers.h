// Combines answers of several processes, a part in each turn of the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cli/control_socket.h"
#include "cli/isolate/answers.h"
#include "util/event_loop.h"

namespace softhca::cli {

class JoinedAnswers {
 public:
  /// `loop` must outlive this.
  explicit JoinedAnswers(util::EventLoop& loop) : loop_(loop), next_(loop, [this] { turn(); }) {}

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

  util::EventLoop& loop_;
  std::deque<Joining> joinings_;
  util::EventLoop::Notice next_;
};

}  // namespace softhca::cli
