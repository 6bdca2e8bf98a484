#include "server/network_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "control/words.h"
#include "util/nearest.h"
#include "util/rule_words.h"

namespace softhca::server {
namespace {

using fabric::NetworkFaults;

constexpr char kMark = 'n';

std::string describe(const NetworkFaults::Entry& entry) {
  return fmt::format("{}{}: {}\n", kMark, entry.id,
                     fabric::counts_text(entry.rule, *entry.counters));
}

}  // namespace

util::Result<std::string> NetworkRules::add(std::string_view text) {
  auto rule = fabric::parse_fault(text);
  if (!rule) return tl::unexpected(rule.error());
  if (rule->port != "*" && std::ranges::find(ports_, rule->port) == ports_.end()) {
    return util::fail(
        fmt::format("there is no port '{}'{}", rule->port, util::nearest(rule->port, ports_)));
  }
  if (faults_.rules().size() == NetworkFaults::kMax) {
    return util::fail(fmt::format("there are {} rules already", NetworkFaults::kMax));
  }
  return describe(*faults_.find(faults_.add(*std::move(rule))));
}

util::Result<std::string> NetworkRules::remove(std::string_view number) {
  const auto id = util::parse_number<NetworkFaults::Id>(number.substr(1));
  if (!id || !faults_.remove(*id)) {
    return util::fail(fmt::format("there is no rule '{}'; see fault list", number));
  }
  return std::string();
}

util::Result<std::string> NetworkRules::answer(
    std::string_view words, const std::function<util::Result<std::string>()>& others) {
  const auto verb = control::next_word(words);
  const auto argument = control::next_word(words);
  const bool single = control::next_word(words).empty();
  if (verb == "add" && fabric::is_network_rule(argument)) {
    return single ? add(argument) : util::fail("a rule has no blanks");
  }
  if (verb == "remove" && argument.starts_with(kMark) && single) return remove(argument);
  auto answer = others();
  if (!answer || (verb != "list" && verb != "clear")) return answer;
  for (const auto& entry : faults_.rules()) *answer += describe(*entry);
  if (verb == "clear") faults_.clear();
  return answer;
}

}  // namespace softhca::server
