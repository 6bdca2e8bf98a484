// A socket by which `softhca run --control` asks a process of the run what its devices look like.
// One question is heard at a time, and answered whole.
//
//   inspect JSON FROM COUNT [FUNCTION]      of which JSON is 0 or 1
//
// Who asks is the run itself, which has looked at what its user has asked for: the directory of the
// socket is the user's alone.
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
  /// Nothing: it is none.
  static std::optional<Question> parse(std::string_view line);

  /// Listens in `directory` at a name that no other process has, and that begins with this one's:
  /// processes of several PID namespaces may have the same number. The file goes with its
  /// directory.
  static util::Result<ControlPoint> create(const std::string& directory);

  /// Readable when somebody asks.
  int fd() const { return listener_.get(); }
  /// Reads one question, if there is one, and sends what `answer` says. An asker has kPatience for
  /// his question, and as much to take the answer: the devices wait meanwhile.
  void serve(const std::function<std::string(const Question&)>& answer,
             const std::function<util::Time()>& clock = util::monotonic_now);
  static constexpr std::chrono::seconds kPatience{1};

 private:
  explicit ControlPoint(vfio_user::UniqueFd listener) : listener_(std::move(listener)) {}

  vfio_user::UniqueFd listener_;
};

}  // namespace softhca::door
