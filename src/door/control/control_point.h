// A socket on which `softhca run --control` asks a process of the run about its devices. The
// process serves one question at a time, and answers it completely. It never waits for the asker.
//
//   inspect JSON FROM COUNT [FUNCTION]      JSON is 0 or 1
//
// The asker is the run itself, which has already checked its user's request: only the user can
// reach the directory of the socket.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "os/unique_fd.h"
#include "util/clock.h"
#include "util/inspection.h"
#include "util/result.h"

namespace softhca::door {

class ControlPoint {
 public:
  struct Question {
    std::string function;  ///< empty: all
    util::Inspection::Options show;
  };
  static std::string line_of(const Question& question);
  /// Nothing: the line is no valid question.
  static std::optional<Question> parse(std::string_view line);

  /// Listens in `directory`, at a name that begins with this process's number. A suffix makes it
  /// unique: processes of several PID namespaces may have the same number. The file is removed with
  /// its directory.
  static util::Result<ControlPoint> create(const std::string& directory);

  /// The descriptor and the events (of poll()) for which serve() has work next: a connection, more
  /// of its question, or room for more of the answer.
  int fd() const;
  short events() const;
  /// Serves the question as far as possible without waiting. Sends the result of `answer`. The
  /// asker has kPatience to send the question, and as much to receive the answer.
  void serve(const std::function<std::string(const Question&)>& answer,
             const std::function<util::Time()>& clock = util::monotonic_now);
  static constexpr std::chrono::seconds kPatience{1};
  /// serve() has to drop an asker whose time is over.
  bool is_overdue(util::Time now) const { return asker_ && now >= patient_until_; }

 private:
  explicit ControlPoint(os::UniqueFd listener) : listener_(std::move(listener)) {}

  /// False: there is no asker.
  bool accept(util::Time now);
  /// False: more of the question has to come, or the asker is gone.
  bool read_question();
  void send_answer();

  os::UniqueFd listener_;
  os::UniqueFd asker_;  ///< none: the next one is to be accepted
  util::Time patient_until_{};
  std::string question_;               ///< so far
  std::optional<std::string> answer_;  ///< none: the question is not complete
  std::size_t sent_ = 0;               ///< bytes of the answer
};

}  // namespace softhca::door
