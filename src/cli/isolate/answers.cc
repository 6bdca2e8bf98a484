#include "cli/isolate/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace softhca::cli {
namespace {

/// True if all brackets and strings that begin in `text` end in it, and it is in braces: whatever
/// is in it, it says nothing about what stands beside it. It is not parsed, which takes too long.
bool is_closed(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i != text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        if (++i == text.size()) return false;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (depth == 0 && (i == 0 ? c != '{' : c != '\n')) return false;
    in_string = c == '"';
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return !text.empty() && depth == 0 && !in_string;
}

/// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

}  // namespace

std::string as_text(std::string_view name, std::string_view what, std::string_view answer,
                    unsigned depth) {
  auto rest = answer;
  if (rest.starts_with(kOk)) {
    rest.remove_prefix(kOk.size());
    auto body = rest;
    if (next_line(body) == fmt::format("{}:", what)) rest = body;
  }
  auto out = fmt::format("{:{}}{}:\n", "", depth * 2, name);
  while (!rest.empty()) {
    const auto line = next_line(rest);
    out.append(depth * 2, ' ');
    if (!line.starts_with("  ")) out += "  ";
    for (const char c : line) {
      out += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
    }
    out += '\n';
  }
  return out;
}

std::string as_member(std::string_view name, std::string_view answer) {
  const auto quoted = [](std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  if (answer.starts_with(kOk)) {
    const auto json = answer.substr(kOk.size());
    if (is_closed(json)) return fmt::format("{}: {}", quoted(name), json);
    answer = "error: this is not JSON";
  }
  return fmt::format("{}: {{\"error\": {}}}\n", quoted(name), quoted(answer));
}

}  // namespace softhca::cli
