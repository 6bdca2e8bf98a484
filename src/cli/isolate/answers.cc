#include "cli/isolate/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

namespace softhca::cli {
namespace {

/// Cost of checking or writing one byte of an answer (util::WorkBudget).
constexpr std::int64_t kByteWork = 4;
/// Maximum length of an error; ours have one line.
constexpr std::size_t kErrorMax = 4096;

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

bool ClosedJson::add(std::string_view piece) {
  for (const char c : piece) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    if (depth_ == 0 && c != (begun_ ? '\n' : '{')) return false;
    begun_ = true;
    in_string_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') --depth_;
  }
  return true;
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
  out += fmt::format("{:{}}{}:\n", "", part_.depth * 2, part_.name);
  step_ = Step::kWrite;
  if (!ok) return;
  at_ = kOk.size();
  const auto title = fmt::format("{}:\n", part_.what);
  if (answer.substr(at_).starts_with(title)) at_ += title.size();
}

void AnswerWriter::check(std::string& out, std::string_view piece) {
  const bool good = bounds_.add(piece);
  const bool last = at_ == part_.answer.size();
  if (!good || (last && !bounds_.closed())) return write_error(out, "error: this is not JSON");
  if (!last) return;
  out += json_string(part_.name) + ": ";
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
  out += fmt::format("{}: {{\"error\": {}}}\n", json_string(part_.name),
                     json_string(text.substr(0, kErrorMax)));
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
    const bool control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    out += control && !line_begins_ ? '?' : c;
  }
}

std::string to_text(AnswerPart part, bool json) {
  std::string out;
  util::WorkBudget all(std::numeric_limits<std::int64_t>::max());
  AnswerWriter(std::move(part), json).go_on(out, all);
  return out;
}

}  // namespace softhca::cli
