#include "control/inspect_request.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "control/words.h"

namespace softhca::control {
namespace {

/// Parses a decimal number, or a hexadecimal one after "0x".
std::optional<std::uint64_t> parse_number(std::string_view text) {
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, value, hex ? 16 : 10);
  if (bad != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

util::Result<InspectRequest> parse_inspect(std::string_view words) {
  InspectRequest request;
  auto& show = request.show;
  for (auto word = next_word(words); !word.empty(); word = next_word(words)) {
    if (word == "--json") {
      show.json = true;
    } else if (word == "--from") {
      const auto from = parse_number(next_word(words));
      if (!from) return util::fail("--from wants a number");
      show.from = *from;
    } else if (word == "--count") {
      const auto count = parse_number(next_word(words));
      if (!count || *count == 0 || *count > util::Inspection::kCountMax) {
        return util::fail(
            fmt::format("--count wants a number from 1 to {}", util::Inspection::kCountMax));
      }
      show.count = static_cast<std::uint32_t>(*count);
    } else if (request.function.empty()) {
      request.function = word;
    } else {
      return util::fail("inspect takes one function, or none for all");
    }
  }
  return request;
}

std::string to_line(const InspectRequest& request) {
  const auto& show = request.show;
  std::string line = "inspect";
  if (show.json) line += " --json";
  if (show.from != 0) line += fmt::format(" --from {:#x}", show.from);
  if (show.count != util::Inspection::kCount) line += fmt::format(" --count {}", show.count);
  if (!request.function.empty()) line += " " + request.function;
  return line;
}

}  // namespace softhca::control
