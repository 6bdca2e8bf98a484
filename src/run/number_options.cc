#include "run/number_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace softhca::run {
namespace {

std::optional<std::uint64_t> parse_whole(std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, value, hex ? 16 : 10);
  if (bad != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  // The help shows no limit that users do not meet.
  const bool any = least == 0 && most >= INT32_MAX;
  return {[least, most](std::string& text) -> std::string {
            const auto value = parse_whole(text);
            if (!value || *value < least || *value > most) {
              return fmt::format("'{}' is no whole number from {} to {}", text, least, most);
            }
            text = fmt::format("{}", *value);
            return {};
          },
          any ? "" : fmt::format("UINT in [{} - {}]", least, most)};
}

CLI::Validator real_number(double least, double most) {
  return {[least, most](std::string& text) -> std::string {
            double value = 0;
            const auto* const end = text.data() + text.size();
            const auto [stop, bad] = std::from_chars(text.data(), end, value);
            // A nan is in no range.
            if (bad == std::errc() && stop == end && value >= least && value <= most) return {};
            return fmt::format("'{}' is no number from {} to {}", text, least, most);
          },
          fmt::format("FLOAT in [{} - {}]", least, most)};
}

}  // namespace softhca::run
