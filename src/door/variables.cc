#include "door/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <utility>

#include "util/nearest.h"
#include "wire/address_text.h"

namespace softhca::door {
namespace {

using Get = std::function<const char*(const char*)>;

std::string word_of(const Get& get, const char* name) {
  const char* const given = get(name);
  return given == nullptr ? "" : given;
}

void note_mistake(Variables& all, const char* name, std::string_view word,
                  std::string_view wanted) {
  all.mistakes.push_back(fmt::format("{}={}: want {}", name, word, wanted));
}

/// Sets `out` to the value of the word that `name` has.
template <class T>
void choose(Variables& all, const Get& get, const char* name, T& out,
            std::initializer_list<std::pair<std::string_view, T>> values) {
  const auto word = word_of(get, name);
  if (word.empty()) return;
  std::string wanted;
  for (const auto& one : values) {
    if (one.first == word) {
      out = one.second;
      return;
    }
    const bool is_last = &one == values.end() - 1;
    wanted += fmt::format("{}{}", wanted.empty() ? "" : is_last ? " or " : ", ", one.first);
  }
  note_mistake(all, name, word, wanted);
}

bool is_address(const std::string& word) {
  constexpr std::string_view kFollowed = "if:";
  if (word.starts_with(kFollowed)) return word.size() > kFollowed.size();
  return wire::parse_ipv4(word).has_value();
}

std::vector<std::string> split(const std::string& word) {
  std::vector<std::string> words;
  std::istringstream all(word);
  for (std::string one; std::getline(all, one, ',');) words.push_back(one);
  return words;
}

}  // namespace

Variables read_variables(const Get& get) {
  using util::LogLevel;
  Variables all;
  choose(all, get, "SOFTHCA_LOG", all.log_level,
         {{"debug", LogLevel::kDebug},
          {"info", LogLevel::kInfo},
          {"warning", LogLevel::kWarning},
          {"error", LogLevel::kError}});
  choose(all, get, "SOFTHCA_DOORBELLS", all.traps_doorbells, {{"trap", true}, {"poll", false}});
  choose(all, get, "SOFTHCA_MEMLOCK", all.enforces_memlock, {{"warn", false}, {"enforce", true}});
  all.control = word_of(get, "SOFTHCA_CONTROL");
  all.faults = word_of(get, "SOFTHCA_FAULTS");
  if (const auto word = word_of(get, "SOFTHCA_LOSS"); !word.empty()) {
    const auto loss = FrameLoss::read(word);
    if (!loss)
      note_mistake(all, "SOFTHCA_LOSS", word, "a probability from 0 to 1, a comma and a seed");
    all.loss = loss.value_or(FrameLoss{});
  }
  if (const auto word = word_of(get, kDevicesVariable); !word.empty()) {
    const auto numbers = parse_device_numbers(word);
    if (!numbers) note_mistake(all, kDevicesVariable, word, "what softhca run has set");
    all.numbers = numbers.value_or(DeviceNumbers{});
  }
  const auto addresses = word_of(get, "SOFTHCA_ADDRESS");
  all.addresses = split(addresses);
  if (!std::ranges::all_of(all.addresses, is_address)) {
    note_mistake(all, "SOFTHCA_ADDRESS", addresses,
                 "IPv4 addresses or if:NAME, separated by commas");
  }
  return all;
}

std::vector<std::string> mistyped_names(const char* const* environment) {
  const std::vector<std::string> names = {
      "SOFTHCA_ACCEL",   "SOFTHCA_ADDRESS",   "SOFTHCA_CONTROL",    "SOFTHCA_DEVICES",
      "SOFTHCA_DOOR",    "SOFTHCA_DOORBELLS", "SOFTHCA_FABRIC_KEY", "SOFTHCA_FAULTS",
      "SOFTHCA_LIBRARY", "SOFTHCA_LOG",       "SOFTHCA_LOSS",       "SOFTHCA_MEMLOCK",
      "SOFTHCA_MIRROR",  "SOFTHCA_QEMU"};
  std::vector<std::string> lines;
  for (auto at = environment; at != nullptr && *at != nullptr; ++at) {
    const std::string_view variable(*at);
    const auto name = variable.substr(0, variable.find('='));
    if (!name.starts_with("SOFTHCA_") || std::ranges::count(names, name) != 0) continue;
    // A program may have variables of its own that begin like this.
    if (const auto meant = util::nearest(name, names); !meant.empty())
      lines.push_back(fmt::format("{}: softhca has no such variable{}", name, meant));
  }
  return lines;
}

}  // namespace softhca::door
