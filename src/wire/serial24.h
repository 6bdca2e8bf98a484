// Sequence numbers modulo 2^24: packet and message sequence numbers (IBTA 9.7.1, 9.7.5.1.2).
#pragma once

#include <cstdint>
#include <functional>

namespace softhca::wire {

/// There is no operator<, because the order is not transitive on a circle. before() is meaningful
/// for numbers less than half the circle apart.
template <class Tag>
class Serial24 {
 public:
  static constexpr std::uint32_t kModulus = 1u << 24;
  static constexpr std::uint32_t kMask = kModulus - 1;

  constexpr Serial24() = default;
  /// Uses the low 24 bits.
  constexpr explicit Serial24(std::uint32_t value) : value_(value & kMask) {}
  constexpr std::uint32_t value() const { return value_; }

  constexpr Serial24 next() const { return Serial24(value_ + 1); }
  constexpr Serial24 previous() const { return Serial24(value_ - 1); }
  constexpr Serial24& operator++() { return *this = next(); }
  constexpr Serial24& operator+=(std::uint32_t n) { return *this = *this + n; }
  friend constexpr Serial24 operator+(Serial24 a, std::uint32_t n) {
    return Serial24(a.value_ + n);
  }
  friend constexpr Serial24 operator-(Serial24 a, std::uint32_t n) {
    return Serial24(a.value_ - n);
  }

  /// Distance forward from `b` to `a`, in [-2^23, 2^23): negative if `a` lies before `b`.
  friend constexpr std::int32_t operator-(Serial24 a, Serial24 b) {
    // Shifts the difference to the top of the word, so that bit 23 becomes its sign.
    return static_cast<std::int32_t>((a.value_ - b.value_) << 8) >> 8;
  }
  constexpr bool before(Serial24 other) const { return *this - other < 0; }
  constexpr bool after(Serial24 other) const { return other.before(*this); }
  /// True if this is one of the `count` numbers that begin with `first`.
  constexpr bool within(Serial24 first, std::uint32_t count) const {
    return ((value_ - first.value_) & kMask) < count;
  }

  friend constexpr bool operator==(Serial24, Serial24) = default;

 private:
  std::uint32_t value_ = 0;
};

/// Packet sequence number.
using Psn = Serial24<struct PsnTag>;
/// Message sequence number.
using Msn = Serial24<struct MsnTag>;

}  // namespace softhca::wire

template <class Tag>
struct std::hash<softhca::wire::Serial24<Tag>> {
  std::size_t operator()(softhca::wire::Serial24<Tag> v) const {
    return std::hash<std::uint32_t>{}(v.value());
  }
};
