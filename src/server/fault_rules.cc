#include "server/fault_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "control/words.h"
#include "sdxi/device.h"
#include "server/fault_family.h"
#include "server/hca_functions.h"

namespace softhca::server {
namespace {

template <class Entry>
std::string describe(const Entry& entry, std::string_view rule) {
  return fmt::format("{}: {}: matched {}, fired {}\n", entry.id, rule, entry.matched, entry.fired);
}

std::string describe(const sdxi::Faults::Entry& entry) {
  return describe(entry, to_text(entry.rule));
}

tl::unexpected<util::Error> too_many(std::size_t max) {
  return util::fail(fmt::format("there are {} rules already", max));
}

}  // namespace

util::Result<std::string> FaultRules::add(std::string_view text) {
  const auto family = family_of(text, [this](std::string_view name) {
    std::optional<FaultFamilies> found;
    if (name.empty()) found.emplace();
    for (const auto* function : functions_) {
      if (!name.empty() && function->name() != name) continue;
      if (!found) found.emplace();
      found->sdxi |= dynamic_cast<const sdxi::Device*>(function) != nullptr;
      if (hca_ != nullptr) found->add_hca(dialect_of(*function));
    }
    return found;
  });
  if (!family) return tl::unexpected(family.error());
  if (family->family == FaultFamily::kSdxi) return add_sdxi(text);
  auto rule = parse_hca_rule(text, family->hcas);
  if (!rule) return tl::unexpected(rule.error());
  return add_hca(*std::move(rule));
}

util::Result<std::string> FaultRules::add_sdxi(std::string_view text) {
  auto rule = sdxi::parse_fault(text);
  if (!rule) return tl::unexpected(rule.error());
  if (sdxi_.rules().size() == sdxi::Faults::kMax) return too_many(sdxi::Faults::kMax);
  if (hca_ != nullptr) sdxi_.number_from(hca_->next());
  return describe(*sdxi_.find(sdxi_.add(*std::move(rule))));
}

util::Result<std::string> FaultRules::add_hca(hca::FaultRule rule) {
  if (hca_->rules().size() == hca::Faults::kMax) return too_many(hca::Faults::kMax);
  hca_->number_from(sdxi_.next());
  const auto id = hca_->add(std::move(rule));
  notify_hcas();  // the rule may act now
  return describe_hca(*hca_->find(id));
}

/// The rule's line of the list. A rule for several kinds of HCAs has one text for all.
std::string FaultRules::describe_hca(const hca::Faults::Entry& entry) const {
  const auto takes = [&](const pcie::Function* function) {
    const auto& name = entry.rule.function;
    return dialect_of(*function) != nullptr && (name.empty() || function->name() == name);
  };
  const auto found = std::ranges::find_if(functions_, takes);
  return describe(entry, to_text(entry.rule, dialect_of(**found)->names));
}

void FaultRules::notify_hcas() const {
  for (auto* function : functions_) {
    follow_fault_rules(*function);
  }
}

util::Result<void> FaultRules::remove(std::string_view number) {
  std::uint32_t id = 0;
  const auto* end = number.data() + number.size();
  if (std::from_chars(number.data(), end, id).ptr == end && !number.empty()) {
    if (sdxi_.remove(id)) return {};
    if (hca_ != nullptr && hca_->remove(id)) {
      notify_hcas();
      return {};
    }
  }
  return util::fail(fmt::format("there is no rule '{}'; see fault list", number));
}

void FaultRules::clear() {
  sdxi_.clear();
  if (hca_ == nullptr || hca_->empty()) return;
  hca_->clear();
  notify_hcas();
}

std::string FaultRules::list() const {
  std::map<std::uint32_t, std::string> lines;
  for (const auto& entry : sdxi_.rules()) lines[entry.id] = describe(entry);
  if (hca_ != nullptr) {
    for (const auto& entry : hca_->rules()) lines[entry.id] = describe_hca(entry);
  }
  std::string text;
  for (const auto& [number, line] : lines) text += line;
  return text;
}

util::Result<std::string> FaultRules::answer(std::string_view words) {
  const auto verb = control::next_word(words);
  const auto argument = control::next_word(words);
  if (!control::next_word(words).empty()) return util::fail("a rule has no blanks");
  if (verb == "add") return add(argument);
  if (verb == "remove") {
    if (const auto removed = remove(argument); !removed) return tl::unexpected(removed.error());
    return std::string();
  }
  if (!argument.empty()) return util::fail(fmt::format("fault {} takes no argument", verb));
  if (verb == "list" || verb == "clear") {
    auto text = list();
    if (verb == "clear") clear();
    return text;
  }
  return util::fail("fault takes add RULE, list, remove NUMBER or clear");
}

}  // namespace softhca::server
