#include "fabric/network_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace softhca::fabric {

NetworkFaults::Id NetworkFaults::add(FaultRule rule, Counters* shared) {
  assert(entries_.size() < kMax);
  auto own = shared == nullptr ? std::make_unique<Counters>() : nullptr;
  auto* const counters = shared == nullptr ? own.get() : shared;
  entries_.push_back(std::make_unique<Entry>(
      Entry{.id = next_++, .rule = std::move(rule), .counters = counters, .own = std::move(own)}));
  const auto id = entries_.back()->id;
  changed();
  return id;
}

bool NetworkFaults::remove(Id id) {
  const auto found = std::ranges::find(entries_, id, &Entry::id);
  if (found == entries_.end()) return false;
  // The links may look at it until they know.
  const auto removed = std::move(*found);
  entries_.erase(found);
  changed();
  return true;
}

void NetworkFaults::clear() {
  const auto removed = std::move(entries_);
  entries_.clear();
  changed();
}

const NetworkFaults::Entry* NetworkFaults::find(Id id) const {
  const auto found = std::ranges::find(entries_, id, &Entry::id);
  return found == entries_.end() ? nullptr : found->get();
}

void NetworkFaults::changed() {
  for (auto* observer : observers_) observer->handle_rules();
}

std::string counts_text(const FaultRule& rule, const NetworkFaults::Counters& counters) {
  const auto lost = counters.lost.load(std::memory_order_relaxed);
  return fmt::format("{}: matched {}, fired {}{}", to_text(rule),
                     counters.matched.load(std::memory_order_relaxed),
                     counters.fired.load(std::memory_order_relaxed),
                     lost == 0 ? "" : fmt::format(", lost {}", lost));
}

}  // namespace softhca::fabric
