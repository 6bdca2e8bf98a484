// SQs and RQs by number. They share one number space with QPs (Resources::queue_numbers), so their
// tables are sparse.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "util/id_allocator.h"

namespace softhca::connectx {

template <class T>
class QueueTable {
 public:
  /// At most `max` queues, whatever numbers are left.
  explicit QueueTable(std::uint32_t max) : max_(max) {}

  /// A new queue made as T(number, args...), or null if there are too many.
  template <class... Args>
  T* emplace(util::IdAllocator& numbers, Args&&... args) {
    if (count_ == max_) return nullptr;
    const auto number = numbers.allocate();
    if (!number) return nullptr;
    ++count_;
    if (*number >= queues_.size()) queues_.resize(*number + 1);
    queues_[*number] = std::make_unique<T>(*number, std::forward<Args>(args)...);
    return queues_[*number].get();
  }
  /// Null for a number that no such queue has.
  T* find(std::uint32_t number) const {
    return number < queues_.size() ? queues_[number].get() : nullptr;
  }
  /// @pre find(number) != nullptr
  void erase(util::IdAllocator& numbers, std::uint32_t number) {
    queues_[number].reset();
    numbers.free(number);
    --count_;
  }
  template <class Visit>
  void for_each(Visit&& visit) {
    for (auto& queue : queues_) {
      if (queue) visit(*queue);
    }
  }

 private:
  std::vector<std::unique_ptr<T>> queues_;
  std::uint32_t max_;
  std::uint32_t count_ = 0;
};

}  // namespace softhca::connectx
