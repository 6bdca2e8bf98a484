// One process's answer as a part of a longer answer. Whatever the process sends, it affects only
// its own part. JoinedAnswers puts several parts together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "control/answer_text.h"
#include "util/bits.h"
#include "util/work_budget.h"

namespace softhca::control {

/// A part of an answer: `text`, followed by a process's answer if there is a name.
struct AnswerPart {
  std::string text = {};
  std::string name = {};    ///< empty: no answer
  std::string what = {};    ///< the request
  std::string answer = {};  ///< as received
  unsigned depth = 0;
};

/// Whether a text is a JSON object (RFC 8259) nested at most kDepthMax levels deep. Then it cannot
/// affect the text beside it. nlohmann::json::sax_parse() cannot pause inside a text, and a
/// megabyte takes longer than a turn may; so the grammar is here.
class JsonObject {
 public:
  static constexpr unsigned kDepthMax = 64;

  /// Scans the next bytes. False: no continuation can make the text an object.
  bool add(std::string_view piece);
  /// Whether the text so far is an object.
  bool complete() const { return state_ == State::kEnd; }

 private:
  enum class State : std::uint8_t {
    // Between tokens: what may come.
    kBegin,
    kFirstKey,  ///< or the end of the object
    kKey,
    kColon,
    kFirstValue,  ///< or the end of the array
    kValue,
    kAfter,  ///< a comma, or the end of the object or array
    kEnd,
    // Inside of a token.
    kLiteral,
    kString,
    kEscape,
    kHex,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kSign,
    kExponentDigit
  };

  bool go(State next) {
    state_ = next;
    return true;
  }
  bool step(unsigned char c);
  bool between(unsigned char c);
  bool value(unsigned char c);
  bool literal(const char* rest);
  bool string(unsigned char c);
  bool character(unsigned char c);
  bool number(unsigned char c);
  bool open(bool object);
  bool close(bool object);
  bool in_object() const { return util::has_bit(objects_, 0); }

  State state_ = State::kBegin;
  bool is_key_ = false;  ///< the string
  unsigned depth_ = 0;
  std::uint64_t objects_ = 0;  ///< bit i: level depth_ - i is an object, not an array
  const char* literal_ = "";   ///< the rest of it
  unsigned digits_ = 0;        ///< missing of \uXXXX
  unsigned following_ = 0;     ///< missing bytes of a character in UTF-8
  unsigned char lowest_ = 0;   ///< of the next of them
  unsigned char highest_ = 0;
};

/// A process's answer for a terminal, or as JSON if the request asked for JSON. It has no control
/// characters but line ends; an answer that should be a JSON object and is not becomes an error.
std::string harmless(std::string answer, bool json);

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
  JsonObject object_;
  bool line_begins_ = true;
};

/// Writes a whole part in one call.
std::string to_text(AnswerPart part, bool json);

}  // namespace softhca::control
