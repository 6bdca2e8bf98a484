// The contexts of one function, by number. Those signaled since they were started are active and
// are held here. The state of all others is in memory only, and is read on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sdxi/context.h"

namespace softhca::sdxi {

class ContextSet {
 public:
  /// Contexts 0 to `count` - 1; `home` takes their turns.
  ContextSet(std::size_t count, TurnTaker& home) : contexts_(count), home_(home) {}

  std::size_t size() const { return contexts_.size(); }
  /// Null if the context was never signaled.
  Context* find(ContextNumber number) const {
    return number < contexts_.size() ? contexts_[number].get() : nullptr;
  }
  /// Null if the context is not active.
  Context* find_active(ContextNumber number) const {
    auto* context = find(number);
    return context != nullptr && context->active ? context : nullptr;
  }
  /// Activates a context with a fresh run state. @pre it is not active
  Context& activate(const ContextEntry& entry, const AddressSpace& space) {
    auto& slot = contexts_[entry.number];
    if (slot == nullptr) slot = std::make_unique<Context>(home_);
    slot->reset_run();
    slot->active = true;
    ++active_;
    slot->entry = entry;
    slot->entry_age = updates_;
    slot->space = space;
    return *slot;
  }
  /// @pre the context is of this set
  void deactivate(Context& context) {
    if (std::exchange(context.active, false)) --active_;
  }
  /// Calls `visit` with every active context; `visit` may deactivate it. Looks at no more contexts
  /// than it needs, and at none if none is active.
  template <class Visit>
  void for_each_active(Visit visit) const {
    auto left = active_;
    for (const auto& context : contexts_) {
      if (left == 0) return;
      ++looked_at_;
      if (context == nullptr || !context->active) continue;
      --left;
      visit(*context);
    }
  }
  /// Contexts that for_each_active() has looked at.
  std::uint64_t looked_at() const { return looked_at_; }
  /// Calls `visit` with every context that was ever active.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& context : contexts_) {
      if (context != nullptr) visit(*context);
    }
  }

  /// An update operation (SDXI 4.3.1.1): every context reads its entry again before its next turn,
  /// also those that the operation does not name.
  void update() { ++updates_; }
  std::uint64_t update_count() const { return updates_; }

 private:
  std::vector<std::unique_ptr<Context>> contexts_;
  TurnTaker& home_;
  std::size_t active_ = 0;
  mutable std::uint64_t looked_at_ = 0;
  std::uint64_t updates_ = 0;
};

/// Loads the first Read_Index of an active context from CXT_STS.read_index. False if it cannot be
/// read.
inline bool load_read_index(Context& context) {
  const auto read_index = context.space.load64(context.entry.read_index());
  if (!read_index) return false;
  context.read_index = context.read_index_written = context.write_index = *read_index;
  return true;
}

}  // namespace softhca::sdxi
