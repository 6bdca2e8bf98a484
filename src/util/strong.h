// Integers that must not be confused: Strong<struct QpnTag, std::uint32_t> is a distinct type.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>

namespace softhca::util {

template <class Tag, class T>
class Strong {
 public:
  using Value = T;
  constexpr Strong() = default;
  constexpr explicit Strong(T value) : value_(value) {}
  constexpr T value() const { return value_; }
  friend constexpr auto operator<=>(Strong, Strong) = default;

 private:
  T value_{};
};

}  // namespace softhca::util

template <class Tag, class T>
struct std::hash<softhca::util::Strong<Tag, T>> {
  std::size_t operator()(softhca::util::Strong<Tag, T> v) const {
    return std::hash<T>{}(v.value());
  }
};
