#include "control/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "util/json_quote.h"

namespace softhca::control {
namespace {

/// Cost of checking or writing one byte of an answer (util::WorkBudget).
constexpr std::int64_t kByteWork = 4;
/// Maximum length of an error; softhca's own have one line.
constexpr std::size_t kErrorMax = 4096;

constexpr std::string_view kNotJson = "error: this is not JSON";

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }
bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }
bool is_hex(unsigned char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_escape(unsigned char c) {
  return std::string_view("\"\\/bfnrt").find(static_cast<char>(c)) != std::string_view::npos;
}

}  // namespace

bool JsonObject::add(std::string_view piece) {
  return std::ranges::all_of(piece, [this](char c) { return step(static_cast<unsigned char>(c)); });
}

bool JsonObject::step(unsigned char c) {
  switch (state_) {
    case State::kLiteral:
      if (c != static_cast<unsigned char>(*literal_)) return false;
      return *++literal_ != '\0' || go(State::kAfter);
    case State::kString:
      return string(c);
    case State::kEscape:
      digits_ = 4;
      return c == 'u' ? go(State::kHex) : is_escape(c) && go(State::kString);
    case State::kHex:
      return is_hex(c) && (--digits_ != 0 || go(State::kString));
    case State::kMinus:
    case State::kZero:
    case State::kInteger:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kSign:
    case State::kExponentDigit:
      return number(c);
    default:
      return between(c);
  }
}

bool JsonObject::between(unsigned char c) {
  if (c == ' ' || c == '\n' || c == '\t' || c == '\r') return true;
  switch (state_) {
    case State::kBegin:
      return c == '{' && open(true);
    case State::kFirstKey:
      if (c == '}') return close(true);
      [[fallthrough]];
    case State::kKey:
      is_key_ = true;
      return c == '"' && go(State::kString);
    case State::kColon:
      return c == ':' && go(State::kValue);
    case State::kFirstValue:
      if (c == ']') return close(false);
      [[fallthrough]];
    case State::kValue:
      return value(c);
    case State::kAfter:
      if (c == ',') return go(in_object() ? State::kKey : State::kValue);
      return (c == '}' || c == ']') && close(c == '}');
    default:
      return false;
  }
}

bool JsonObject::value(unsigned char c) {
  is_key_ = false;
  switch (c) {
    case '{':
    case '[':
      return open(c == '{');
    case '"':
      return go(State::kString);
    case '-':
      return go(State::kMinus);
    case '0':
      return go(State::kZero);
    case 't':
      return literal("rue");
    case 'f':
      return literal("alse");
    case 'n':
      return literal("ull");
    default:
      return is_digit(c) && go(State::kInteger);
  }
}

bool JsonObject::literal(const char* rest) {
  literal_ = rest;
  return go(State::kLiteral);
}

bool JsonObject::string(unsigned char c) {
  if (following_ != 0) {
    if (c < lowest_ || c > highest_) return false;
    lowest_ = 0x80;
    highest_ = 0xbf;
    --following_;
    return true;
  }
  if (c == '"') return go(is_key_ ? State::kColon : State::kAfter);
  if (c == '\\') return go(State::kEscape);
  return c >= 0x80 ? character(c) : c >= ' ';
}

/// The first byte of a character beyond ASCII: RFC 3629, section 4.
bool JsonObject::character(unsigned char c) {
  if (c < 0xc2 || c > 0xf4) return false;
  following_ = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
  lowest_ = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
  highest_ = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  return true;
}

/// The first character that does not belong to a number ends it.
bool JsonObject::number(unsigned char c) {
  const bool digit = is_digit(c), exponent = c == 'e' || c == 'E';
  switch (state_) {
    case State::kMinus:
      return digit && go(c == '0' ? State::kZero : State::kInteger);
    case State::kPoint:
      return digit && go(State::kFraction);
    case State::kExponent:
      if (c == '+' || c == '-') return go(State::kSign);
      [[fallthrough]];
    case State::kSign:
      return digit && go(State::kExponentDigit);
    case State::kZero:
    case State::kInteger:
      if (c == '.') return go(State::kPoint);
      [[fallthrough]];
    case State::kFraction:
      if (exponent) return go(State::kExponent);
      [[fallthrough]];
    default:
      if (digit && state_ != State::kZero) return true;
  }
  state_ = State::kAfter;
  return between(c);
}

bool JsonObject::open(bool object) {
  if (depth_ == kDepthMax) return false;
  ++depth_;
  objects_ = objects_ << 1 | (object ? 1 : 0);  // no format: a stack of bits
  return go(object ? State::kFirstKey : State::kFirstValue);
}

bool JsonObject::close(bool object) {
  if (in_object() != object) return false;
  objects_ >>= 1;
  return go(--depth_ == 0 ? State::kEnd : State::kAfter);
}

std::string harmless(std::string answer, bool json) {
  if (json && answer.starts_with(kOk)) {
    JsonObject object;
    const bool good = object.add(std::string_view(answer).substr(kOk.size())) && object.complete();
    return good ? answer : std::string(kNotJson) + "\n";
  }
  std::ranges::replace_if(answer, [](char c) { return is_control(c) && c != '\n'; }, '?');
  return answer;
}

bool AnswerWriter::go_on(std::string& out, util::WorkBudget& work) {
  if (step_ == Step::kBegin) begin(out);
  while (step_ != Step::kEnd && !work.spent()) {
    const auto rest = std::string_view(part_.answer).substr(at_);
    const auto fits = static_cast<std::size_t>(std::max<std::int64_t>(1, work.left() / kByteWork));
    const auto piece = rest.substr(0, fits);
    const auto before = out.size();
    at_ += piece.size();
    if (step_ == Step::kCheck) {
      check(out, piece);
    } else {
      write(out, piece);
    }
    work.charge(kByteWork * static_cast<std::int64_t>(std::max(piece.size(), out.size() - before)));
  }
  return step_ == Step::kEnd;
}

void AnswerWriter::begin(std::string& out) {
  out += part_.text;
  step_ = Step::kEnd;
  if (part_.name.empty()) return;
  const std::string_view answer = part_.answer;
  const bool ok = answer.starts_with(kOk);
  if (json_) {
    if (!ok) return write_error(out, answer);
    step_ = Step::kCheck;
    at_ = kOk.size();
    return;
  }
  std::ranges::replace_if(part_.name, is_control, '?');  // a file's name
  out += fmt::format("{:{}}{}:\n", "", part_.depth * 2, part_.name);
  step_ = Step::kWrite;
  if (!ok) return;
  at_ = kOk.size();
  const auto title = fmt::format("{}:\n", part_.what);
  if (answer.substr(at_).starts_with(title)) at_ += title.size();
}

void AnswerWriter::check(std::string& out, std::string_view piece) {
  const bool good = object_.add(piece);
  const bool last = at_ == part_.answer.size();
  if (!good || (last && !object_.complete())) return write_error(out, kNotJson);
  if (!last) return;
  out += util::json_quote(part_.name) + ": ";
  step_ = Step::kWrite;
  at_ = kOk.size();
}

void AnswerWriter::write(std::string& out, std::string_view piece) {
  if (json_) {
    out += piece;
  } else {
    write_lines(out, piece);
  }
  if (at_ != part_.answer.size()) return;
  if (!json_ && !line_begins_) out += '\n';
  step_ = Step::kEnd;
}

void AnswerWriter::write_error(std::string& out, std::string_view text) {
  out += fmt::format("{}: {{\"error\": {}}}\n", util::json_quote(part_.name),
                     util::json_quote(text.substr(0, kErrorMax)));
  step_ = Step::kEnd;
}

void AnswerWriter::write_lines(std::string& out, std::string_view piece) {
  for (std::size_t i = 0; i != piece.size(); ++i) {
    const char c = piece[i];
    if (line_begins_) {
      out.append(part_.depth * 2, ' ');
      const auto line = std::string_view(part_.answer).substr(at_ - piece.size() + i);
      if (!line.starts_with("  ")) out += "  ";
    }
    line_begins_ = c == '\n';
    out += is_control(c) && !line_begins_ ? '?' : c;
  }
}

std::string to_text(AnswerPart part, bool json) {
  std::string out;
  util::WorkBudget all(std::numeric_limits<std::int64_t>::max());
  AnswerWriter(std::move(part), json).go_on(out, all);
  return out;
}

}  // namespace softhca::control
