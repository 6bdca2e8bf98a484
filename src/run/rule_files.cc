#include "run/rule_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace softhca::run {
namespace {

constexpr char kFile = '@', kComment = '#';
constexpr std::string_view kBlanks = " \t\r";

std::string_view trim(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const auto last = line.find_last_not_of(kBlanks);
  return line.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

}  // namespace

std::vector<std::string> rules_in(std::string_view text) {
  std::vector<std::string> rules;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto rule = trim(line.substr(0, line.find(kComment)));
    if (!rule.empty()) rules.emplace_back(rule);
  }
  return rules;
}

util::Result<std::vector<std::string>> read_rules(const std::vector<std::string>& words) {
  std::vector<std::string> rules;
  for (const auto& word : words) {
    if (!word.starts_with(kFile)) {
      rules.push_back(word);
      continue;
    }
    std::ifstream file(word.substr(1), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file.is_open() || file.bad()) {
      return util::fail(fmt::format("--fault {}: {}", word, ::strerror(errno)));
    }
    std::ranges::move(rules_in(text), std::back_inserter(rules));
  }
  return rules;
}

}  // namespace softhca::run
