// Combines the answers of processes into one. A process can only affect its own part, whatever it
// sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "util/work_budget.h"

namespace softhca::cli {

inline constexpr std::string_view kOk = "ok\n";

/// A part of an answer: `text`, followed by a process's answer if there is a name.
struct AnswerPart {
  std::string text = {};
  std::string name = {};    ///< empty: no answer
  std::string what = {};    ///< the request
  std::string answer = {};  ///< as received
  unsigned depth = 0;
};

/// Whether a text is an object in braces in which all brackets and strings are closed. Then it
/// cannot affect the text beside it. A full parse would take too long.
class ClosedJson {
 public:
  /// Scans the next bytes. False: no continuation can make the text closed.
  bool add(std::string_view piece);
  /// Whether the text so far is closed.
  bool closed() const { return begun_ && depth_ == 0 && !in_string_; }

 private:
  bool begun_ = false;
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

/// Appends a part to a text, a piece at a time, since checking a megabyte takes long.
///
/// As JSON, the answer to "inspect --json WHAT" becomes a member of an object. An error, or
/// anything but an object, becomes an object with a member "error". As text, the answer to "inspect
/// WHAT" becomes a part named `name` at level `depth`. Its lines have no control characters, and
/// are indented deeper than the name. An error is put there too.
class AnswerWriter {
 public:
  AnswerWriter(AnswerPart part, bool json) : part_(std::move(part)), json_(json) {}

  /// Appends to `out` as much as `work` allows. True: the part is complete.
  bool go_on(std::string& out, util::WorkBudget& work);

 private:
  enum class Step : std::uint8_t { kBegin, kCheck, kWrite, kEnd };

  void begin(std::string& out);
  void check(std::string& out, std::string_view piece);
  void write(std::string& out, std::string_view piece);
  void write_error(std::string& out, std::string_view text);
  void write_lines(std::string& out, std::string_view piece);

  AnswerPart part_;
  bool json_;
  Step step_ = Step::kBegin;
  std::size_t at_ = 0;  ///< offset in the answer
  ClosedJson bounds_;
  bool line_begins_ = true;
};

/// Writes a whole part at once.
std::string to_text(AnswerPart part, bool json);

}  // namespace softhca::cli
