// The rules of a fault injector, with a number and counters each.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace softhca::util {

template <class Rule>
class RuleList {
 public:
  /// Never used twice; 0: none.
  using Id = std::uint32_t;
  struct Entry {
    Id id;
    Rule rule;
    std::uint64_t matched = 0;  ///< events that the rule matched
    std::uint64_t fired = 0;    ///< times that it had an effect
  };

  /// Most rules at a time: every event is compared with each.
  static constexpr std::size_t kMax = 1024;

  /// @pre fewer than kMax
  Id add(Rule rule) {
    assert(entries_.size() < kMax);
    entries_.push_back({.id = next_++, .rule = std::move(rule)});
    return entries_.back().id;
  }
  /// The number of the next rule is at least this.
  void number_from(Id next) { next_ = std::max(next_, next); }
  Id next() const { return next_; }
  /// False if there is no such rule.
  bool remove(Id id) {
    return std::erase_if(entries_, [id](const Entry& entry) { return entry.id == id; }) != 0;
  }
  void clear() { entries_.clear(); }
  /// By ascending number.
  std::span<const Entry> rules() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  /// Null if there is no such rule.
  const Entry* find(Id id) const {
    const auto found = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
    return found == entries_.end() || found->id != id ? nullptr : &*found;
  }

 protected:
  std::span<Entry> entries() { return entries_; }

 private:
  std::vector<Entry> entries_;
  Id next_ = 1;
};

}  // namespace softhca::util
