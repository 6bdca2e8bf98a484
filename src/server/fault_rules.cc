#include "server/fault_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "connectx/device.h"
#include "connectx/fault_names.h"
#include "control/words.h"
#include "sdxi/device.h"
#include "server/fault_family.h"

namespace softhca::server {
namespace {

template <class Entry>
std::string describe(const Entry& entry, std::string_view rule) {
  return fmt::format("{}: {}: matched {}, fired {}\n", entry.id, rule, entry.matched, entry.fired);
}

std::string describe(const sdxi::Faults::Entry& entry) {
  return describe(entry, to_text(entry.rule));
}

std::string describe(const hca::Faults::Entry& entry) {
  return describe(entry, to_text(entry.rule, connectx::fault_names()));
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
      found->hca |= hca_ != nullptr && dynamic_cast<const connectx::Device*>(function) != nullptr;
    }
    return found;
  });
  if (!family) return tl::unexpected(family.error());
  return *family == FaultFamily::kHca ? add_hca(text) : add_sdxi(text);
}

util::Result<std::string> FaultRules::add_sdxi(std::string_view text) {
  auto rule = sdxi::parse_fault(text);
  if (!rule) return tl::unexpected(rule.error());
  if (sdxi_.rules().size() == sdxi::Faults::kMax) return too_many(sdxi::Faults::kMax);
  if (hca_ != nullptr) sdxi_.number_from(hca_->next());
  return describe(*sdxi_.find(sdxi_.add(*std::move(rule))));
}

util::Result<std::string> FaultRules::add_hca(std::string_view text) {
  auto rule = hca::parse_fault(text, connectx::fault_names());
  if (!rule) return tl::unexpected(rule.error());
  if (hca_->rules().size() == hca::Faults::kMax) return too_many(hca::Faults::kMax);
  hca_->number_from(sdxi_.next());
  const auto id = hca_->add(*std::move(rule));
  notify_hcas();  // the rule may act now
  return describe(*hca_->find(id));
}

void FaultRules::notify_hcas() const {
  for (auto* function : functions_) {
    if (auto* device = dynamic_cast<connectx::Device*>(function)) device->faults().follow_rules();
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
    for (const auto& entry : hca_->rules()) lines[entry.id] = describe(entry);
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
