#include "run/rule_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

#include "os/unique_fd.h"

namespace softhca::run {
namespace {

constexpr char kFile = '@', kComment = '#';
constexpr std::string_view kBlanks = " \t\r";
/// Far more than all rules that a run can have.
constexpr std::size_t kFileMax = 1 << 20;

std::string_view trim(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const auto last = line.find_last_not_of(kBlanks);
  return line.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

/// The error message begins with `what`.
util::Result<std::string> contents(const std::string& path, const std::string& what) {
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return util::fail_errno(what);
  std::string text;
  std::array<char, 4096> block;
  for (;;) {
    const auto size = ::read(file.get(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return util::fail_errno(what);
    if (size == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(size));
    if (text.size() > kFileMax) {
      return util::fail(fmt::format("{}: has more than {} bytes", what, kFileMax));
    }
  }
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
    const auto text = contents(word.substr(1), fmt::format("--fault {}", word));
    if (!text) return tl::unexpected(text.error());
    std::ranges::move(rules_in(*text), std::back_inserter(rules));
  }
  return rules;
}

}  // namespace softhca::run
