// Objects by number: CQs by CQN, SQs by SQN. Numbers are dense, so a table is a vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "util/id_allocator.h"
#include "util/work_budget.h"

namespace softhca::hca {

/// `Number` is a util::Strong; objects are constructed as T(number, ...).
template <class T, class Number>
class ObjectTable {
 public:
  /// Owns its numbers, [first, first + count).
  ObjectTable(std::uint32_t first, std::uint32_t count)
      : own_(std::in_place, first, count), numbers_(*own_), first_(first), max_(count) {
    objects_.reserve(numbers_.end() - first_);
  }
  /// Takes numbers from a space that other tables share, and that begins at `first` or above; at
  /// most `max` objects, however many numbers are free.
  ObjectTable(util::IdAllocator& shared, std::uint32_t max, std::uint32_t first = 0)
      : numbers_(shared), first_(first), max_(max) {
    objects_.reserve(numbers_.end() - first_);
  }
  ObjectTable(const ObjectTable&) = delete;
  ObjectTable& operator=(const ObjectTable&) = delete;

  /// Constructs T(number, args...). Null if the table is full or no number is free.
  template <class... Args>
  T* emplace(Args&&... args) {
    if (count_ == max_) return nullptr;
    const auto id = numbers_.allocate();
    if (!id) return nullptr;
    ++count_;
    const auto place = *id - first_;
    if (place >= places_) {
      objects_.resize(place + 1);
      places_ = place + 1;
    }
    objects_[place] = std::make_unique<T>(Number(*id), std::forward<Args>(args)...);
    return objects_[place].get();
  }
  /// Null if no object has this number.
  T* find(Number number) {
    const auto place = place_of(number);
    return place < places_ ? objects_[place].get() : nullptr;
  }
  const T* find(Number number) const {
    const auto place = place_of(number);
    return place < places_ ? objects_[place].get() : nullptr;
  }
  /// @pre find(number) != nullptr
  void erase(Number number) {
    objects_[place_of(number)].reset();
    numbers_.free(number.value());
    --count_;
  }
  std::size_t count() const { return count_; }
  /// No number is below.
  std::uint32_t first() const { return first_; }
  /// One above the highest number that was ever allocated.
  std::uint32_t end() const { return first_ + places_; }
  /// True if the table holds as many objects as it may.
  bool full() const { return count_ == max_; }
  /// Limits the table to `max` objects. @pre count() <= max
  void set_max(std::uint32_t max) { max_ = max; }

  /// Tears the whole table down: destroys as many objects as `work` allows, the last first.
  /// `cost(object)` returns the work that one object takes, and may do what must precede its
  /// destruction. Returns true when no object is left. Numbers stay allocated.
  template <class Cost>
  bool dismantle(util::WorkBudget& work, Cost&& cost) {
    for (; !objects_.empty(); objects_.pop_back(), --places_) {
      if (work.spent()) return false;
      if (objects_.back() == nullptr) {
        work.charge(kPlaceWork);
        continue;
      }
      work.charge(cost(*objects_.back()));
      --count_;
    }
    return true;
  }

  /// Visits objects in the order of their numbers.
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
  /// Cost of skipping a number without an object (util::WorkBudget).
  static constexpr std::int64_t kPlaceWork = 2;

  /// The place of a number; a large one if the number is below `first_`.
  std::uint32_t place_of(Number number) const {
    return static_cast<std::uint32_t>(number.value()) - first_;
  }

  std::optional<util::IdAllocator> own_;
  util::IdAllocator& numbers_;
  /// By number, from `first_` on. The constructor reserves the whole capacity, which costs no
  /// memory until it is used. A vector that reallocates would cost the one command that grows it a
  /// millisecond.
  std::vector<std::unique_ptr<T>> objects_;
  const std::uint32_t first_;
  std::uint32_t places_ = 0;  ///< size of objects_, which find() needs often
  std::uint32_t max_;
  std::uint32_t count_ = 0;
};

}  // namespace softhca::hca
