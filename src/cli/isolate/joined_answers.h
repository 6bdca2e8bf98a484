// Answers of several processes, made to one: some of it in each turn of the loop.
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
  /// `loop` outlives this.
  explicit JoinedAnswers(util::EventLoop& loop) : loop_(loop), next_(loop, [this] { turn(); }) {}

  /// Replies with the parts, one after the other, when they are together.
  void join(std::vector<AnswerPart> parts, bool json, ControlSocket::Reply reply);

 private:
  /// In a turn (util::WorkBudget); what is more waits for the next one.
  static constexpr std::int64_t kTurnWork = 25'000;
  /// A part, whatever its size.
  static constexpr std::int64_t kPartWork = 500;

  struct Joining {
    std::vector<AnswerPart> parts;
    bool json = false;
    std::size_t next = 0;                ///< of the parts
    std::optional<AnswerWriter> writer;  ///< of the part that is under way
    std::string text;
    ControlSocket::Reply reply;
  };

  void turn();
  /// True at its end.
  bool go_on(Joining& joining);

  util::EventLoop& loop_;
  std::deque<Joining> joinings_;
  util::EventLoop::Notice next_;
};

}  // namespace softhca::cli
