#include "main/skip_list.h"

#include <fnmatch.h>

#include <algorithm>

namespace softhca::test {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

SkipList::SkipList(std::istream& lines) {
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const auto first = line.find('|');
    const auto second = line.find('|', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view text(line);
    entries_.push_back(
        {.pattern = std::string(trimmed(text.substr(0, first))),
         .message = std::string(trimmed(text.substr(first + 1, second - first - 1)))});
  }
}

bool SkipList::allows(const std::string& name, std::string_view message) const {
  const auto said = trimmed(message);
  return !said.empty() && std::ranges::any_of(entries_, [&](const Entry& entry) {
    return entry.message == said && ::fnmatch(entry.pattern.c_str(), name.c_str(), 0) == 0;
  });
}

}  // namespace softhca::test
