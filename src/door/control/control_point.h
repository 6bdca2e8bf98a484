// A socket on which `softhca run --control` asks a process of the run about its devices. The
// process serves one question at a time, and answers it completely.
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

#include "util/clock.h"
#include "util/inspection.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

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

  /// Readable when a question waits.
  int fd() const { return listener_.get(); }
  /// Reads one question, if there is one, and sends the result of `answer`. The asker has kPatience
  /// to send the question, and as much to receive the answer: the devices wait meanwhile.
  void serve(const std::function<std::string(const Question&)>& answer,
             const std::function<util::Time()>& clock = util::monotonic_now);
  static constexpr std::chrono::seconds kPatience{1};

 private:
  explicit ControlPoint(vfio_user::UniqueFd listener) : listener_(std::move(listener)) {}

  vfio_user::UniqueFd listener_;
};

}  // namespace softhca::door
