// Answers of processes, put together to one. Whatever a process has sent, it speaks for itself
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "util/work_budget.h"

namespace softhca::cli {

inline constexpr std::string_view kOk = "ok\n";

/// A part of an answer: what `text` says, then what a process answered, if there is a name.
struct AnswerPart {
  std::string text = {};
  std::string name = {};    ///< empty: no answer
  std::string what = {};    ///< that was asked for
  std::string answer = {};  ///< as it came
  unsigned depth = 0;
};

/// True if all brackets and strings that begin in a text end in it, and it is in braces: whatever
/// is in it, it says nothing about what stands beside it. It is not parsed, which takes too long.
class ClosedJson {
 public:
  /// The text's next bytes. False: it is not closed, whatever comes behind them.
  bool add(std::string_view piece);
  /// If nothing comes behind what there was.
  bool closed() const { return begun_ && depth_ == 0 && !in_string_; }

 private:
  bool begun_ = false;
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

/// Puts a part at the end of a text: some of it at a time, since an answer may be a megabyte that
/// has to be looked through.
///
/// As JSON, the answer to "inspect --json WHAT" is a member of an object. An error, or what is no
/// object, is an object with a member "error". As text, the answer to "inspect WHAT" is a part
/// called `name`, `depth` levels down: lines without control characters, all of them deeper than
/// the name. An error stands there, too.
class AnswerWriter {
 public:
  AnswerWriter(AnswerPart part, bool json) : part_(std::move(part)), json_(json) {}

  /// Writes as much to `out` as fits into `work`. True: all of it is there.
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
  std::size_t at_ = 0;  ///< of the answer
  ClosedJson bounds_;
  bool line_begins_ = true;
};

/// A whole part, in one go.
std::string to_text(AnswerPart part, bool json);

}  // namespace softhca::cli
