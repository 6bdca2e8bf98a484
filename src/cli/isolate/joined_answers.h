// Answers of several processes, made to one: a part in each turn of the loop, since a part may be a
// megabyte that has to be looked through.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "cli/control_socket.h"
#include "util/event_loop.h"

namespace softhca::cli {

/// A part of an answer: what `text` says, then what a process answered, if there is a name.
struct AnswerPart {
  std::string text = {};
  std::string name = {};    ///< empty: no answer
  std::string what = {};    ///< that was asked for
  std::string answer = {};  ///< as it came
  unsigned depth = 0;
};

class JoinedAnswers {
 public:
  /// `loop` outlives this.
  explicit JoinedAnswers(util::EventLoop& loop) : loop_(loop), next_(loop, [this] { turn(); }) {}

  /// Replies with the parts, one after the other, when they are together.
  void join(std::vector<AnswerPart> parts, bool json, ControlSocket::Reply reply);

 private:
  /// To look through a byte of an answer and write it down (util::WorkBudget).
  static constexpr std::int64_t kByteWork = 2;

  struct Joining {
    std::vector<AnswerPart> parts;
    std::size_t next = 0;  ///< of them
    bool json = false;
    std::string text;
    ControlSocket::Reply reply;
  };

  void turn();
  /// False at its end.
  bool add_part(Joining& joining);

  util::EventLoop& loop_;
  std::deque<Joining> joinings_;
  util::EventLoop::Notice next_;
};

}  // namespace softhca::cli
