// Objects by number: CQs by CQN, SQs by SQN. Numbers are dense, so a table is a vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "util/id_allocator.h"

namespace softhca::hca {

/// `Number` is a util::Strong; objects are made as T(number, ...).
template <class T, class Number>
class ObjectTable {
 public:
  /// Numbers of its own, from [first, first + count).
  ObjectTable(std::uint32_t first, std::uint32_t count)
      : own_(std::in_place, first, count), numbers_(*own_), max_(count) {}
  /// Numbers of a space that other tables share; at most `max` objects, whatever numbers are left.
  ObjectTable(util::IdAllocator& shared, std::uint32_t max) : numbers_(shared), max_(max) {}
  ObjectTable(const ObjectTable&) = delete;
  ObjectTable& operator=(const ObjectTable&) = delete;

  /// A new object made as T(number, args...), or null if there are too many.
  template <class... Args>
  T* emplace(Args&&... args) {
    if (count_ == max_) return nullptr;
    const auto id = numbers_.allocate();
    if (!id) return nullptr;
    ++count_;
    if (*id >= objects_.size()) objects_.resize(*id + 1);
    objects_[*id] = std::make_unique<T>(Number(*id), std::forward<Args>(args)...);
    return objects_[*id].get();
  }
  /// Null for a number that no such object has.
  T* find(Number number) {
    return number.value() < objects_.size() ? objects_[number.value()].get() : nullptr;
  }
  const T* find(Number number) const {
    return number.value() < objects_.size() ? objects_[number.value()].get() : nullptr;
  }
  /// @pre find(number) != nullptr
  void erase(Number number) {
    objects_[number.value()].reset();
    numbers_.free(number.value());
    --count_;
  }
  std::size_t count() const { return count_; }
  /// From now on at most `max` objects. @pre count() <= max
  void set_max(std::uint32_t max) { max_ = max; }

  /// In the order of their numbers.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (auto& object : objects_) {
      if (object) visit(*object);
    }
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& object : objects_) {
      if (object) visit(std::as_const(*object));
    }
  }

 private:
  std::optional<util::IdAllocator> own_;
  util::IdAllocator& numbers_;
  std::vector<std::unique_ptr<T>> objects_;  ///< by number
  std::uint32_t max_;
  std::uint32_t count_ = 0;
};

}  // namespace softhca::hca
