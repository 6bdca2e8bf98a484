// Numbered objects: CQs by CQN, PDs by PD number, and so on. Numbers are dense, so a table is a
// vector.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "util/id_allocator.h"

namespace softhca::connectx {

template <class T>
class ObjectTable {
 public:
  /// Numbers from [first, first + count).
  ObjectTable(std::uint32_t first, std::uint32_t count) : ids_(first, count) {}

  /// A new object made as T(number, args...), or null if all numbers are in use.
  template <class... Args>
  T* emplace(Args&&... args) {
    const auto id = ids_.allocate();
    if (!id) return nullptr;
    if (*id >= objects_.size()) objects_.resize(*id + 1);
    objects_[*id] = std::make_unique<T>(*id, std::forward<Args>(args)...);
    ++count_;
    return objects_[*id].get();
  }
  /// Null for a number that nobody has.
  T* find(std::uint32_t id) { return id < objects_.size() ? objects_[id].get() : nullptr; }
  const T* find(std::uint32_t id) const {
    return id < objects_.size() ? objects_[id].get() : nullptr;
  }
  /// @pre find(id) != nullptr
  void erase(std::uint32_t id) {
    objects_[id].reset();
    ids_.free(id);
    --count_;
  }
  std::size_t count() const { return count_; }
  template <class Visit>
  void for_each(Visit&& visit) {
    for (auto& object : objects_) {
      if (object) visit(*object);
    }
  }

 private:
  util::IdAllocator ids_;
  std::vector<std::unique_ptr<T>> objects_;
  std::size_t count_ = 0;
};

}  // namespace softhca::connectx
