// Bits of a word that is available as a number: a register that was written, a set, an address
// whose low bits are omitted. Views read fields in memory (field.h).
#pragma once

#include <concepts>

namespace softhca::util {

/// True if bit `n` of a set is 1.
template <std::unsigned_integral Word>
constexpr bool has_bit(Word set, unsigned n) {
  return (set >> n & 1) != 0;
}

/// The value of `field` in `word`.
template <class Field>
constexpr typename Field::Word part_of(typename Field::Word word, Field) {
  return static_cast<typename Field::Word>(word >> Field::kLo & Field::kMax);
}

/// A word with `value` in `field`, and 0 elsewhere.
template <class Field>
constexpr typename Field::Word in_place(Field, typename Field::Word value) {
  return static_cast<typename Field::Word>(value << Field::kLo);
}

/// One number from two fields: `high`, and below it as many bits as `low` has.
template <class Word, class Low>
constexpr Word joined(Word high, Low, typename Low::Word low) {
  return static_cast<Word>(high << Low::kWidth | low);
}

}  // namespace softhca::util
