// The contexts of one function, by number. Those signaled since they were started are active and
// are held here. The state of all others is in memory only, and is read on demand.
#pragma once

#include <cstdint>
#include <memory>
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
    slot->entry = entry;
    slot->entry_age = updates_;
    slot->space = space;
    return *slot;
  }
  /// Calls `visit` with every active context; `visit` may drop it.
  template <class Visit>
  void for_each_active(Visit visit) const {
    for (const auto& context : contexts_) {
      if (context != nullptr && context->active) visit(*context);
    }
  }
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
