// Finds the queue of a completion by the user index that the completion carries.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <vector>

#include "util/id_allocator.h"

namespace softhca::driver::connectx {

/// A queue, or a pair of queues, whose requests complete in CQs.
class CompletionTarget {
 public:
  /// QPN, SQN or RQN.
  std::uint32_t number() const { return number_; }
  /// Completes this request and all before it; returns its id. Nothing if no such request is
  /// posted. `number`: the queue number in the completion, or the flow tag in its place.
  virtual std::optional<std::uint64_t> complete_send(std::uint32_t number,
                                                     std::uint16_t counter) = 0;
  virtual std::optional<std::uint64_t> complete_receive(std::uint32_t number,
                                                        std::uint16_t counter) = 0;

 protected:
  CompletionTarget() = default;
  ~CompletionTarget() = default;
  CompletionTarget(const CompletionTarget&) = delete;
  CompletionTarget& operator=(const CompletionTarget&) = delete;

  std::uint32_t number_ = 0;
};

class CompletionTargets {
 public:
  /// User indexes have 24 bits; to the device, all ones mean "none".
  static constexpr std::uint32_t kMax = 0xffffff;

  /// Returns a user index for `target`; nothing if all are in use.
  std::optional<std::uint32_t> insert(CompletionTarget& target) {
    const auto index = ids_.allocate();
    if (!index) return std::nullopt;
    if (*index >= targets_.size()) targets_.resize(*index + 1);
    targets_[*index] = &target;
    return index;
  }
  void erase(std::uint32_t index) {
    assert(find(index) != nullptr);
    targets_[index] = nullptr;
    ids_.free(index);
  }
  /// Null if no target has the index.
  CompletionTarget* find(std::uint32_t index) const {
    return index < targets_.size() ? targets_[index] : nullptr;
  }

 private:
  util::IdAllocator ids_{0, kMax};
  std::vector<CompletionTarget*> targets_;
};

}  // namespace softhca::driver::connectx
