// Typed access to the fields of a structure that a `spec/*.layout` file declares.
// tools/layout_compiler.py turns each structure into a type with one constant per field.
//
// The maker of a View checks that the bytes suffice (hot_assert.h: a release build does not).
// Accessors need no checks, because the compiler knows the field's offset. A field of another
// structure does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "util/endian.h"
#include "util/hot_assert.h"

namespace softhca::util {

/// Bits [Hi:Lo] of the word at byte `Offset` of structure `Owner`. The word is 32 bits wide, or
/// 64 if Hi > 31. In a big-endian document bit 31 is the top bit of the byte at the lowest
/// address.
template <class Owner, ByteOrder Order, std::size_t Offset, unsigned Hi, unsigned Lo>
struct Field {
  static_assert(Hi < 64 && Lo <= Hi);
  using Word = std::conditional_t<(Hi > 31), std::uint64_t, std::uint32_t>;
  static constexpr std::size_t kOffset = Offset;
  static constexpr unsigned kHi = Hi;
  static constexpr unsigned kLo = Lo;
  static constexpr unsigned kWidth = Hi - Lo + 1;
  /// All ones in the field's width, at bit 0.
  static constexpr Word kMax = static_cast<Word>(
      kWidth == sizeof(Word) * 8 ? ~Word{0} : (Word{1} << (kWidth % (sizeof(Word) * 8))) - 1);

  static Word read(const std::byte* structure) {
    return static_cast<Word>((load<Order, Word>(structure + Offset) >> Lo) & kMax);
  }
  /// @pre `value` fits the field's width
  static void write(std::byte* structure, Word value) {
    SOFTHCA_HOT_ASSERT((value & ~kMax) == 0 && "value does not fit its field");
    const auto mask = static_cast<Word>(kMax << Lo);
    const Word old = load<Order, Word>(structure + Offset);
    store<Order, Word>(structure + Offset,
                       static_cast<Word>((old & ~mask) | ((value & kMax) << Lo)));
  }
};

/// A structure `Inner` embedded at byte `Offset` of `Owner`.
template <class Owner, class Inner, std::size_t Offset>
struct SubStruct {
  static constexpr std::size_t kOffset = Offset;
};

/// `Size` uninterpreted bytes at byte `Offset` of `Owner`.
template <class Owner, std::size_t Offset, std::size_t Size>
struct ByteField {
  static constexpr std::size_t kOffset = Offset;
  static constexpr std::size_t kSize = Size;
};

/// Description of a field, for printers and tests.
struct FieldInfo {
  std::string_view name;
  std::uint32_t offset;  ///< bytes from the start of the structure
  std::uint16_t hi;
  std::uint16_t lo;
  std::string_view note;  ///< section or meaning, may be empty
};

/// Read-only view of a structure in memory.
template <class Layout>
class View {
 public:
  /// @pre bytes.size() >= Layout::kSize
  explicit View(std::span<const std::byte> bytes) : data_(bytes.data()) {
    SOFTHCA_HOT_ASSERT(bytes.size() >= Layout::kSize);
  }

  template <ByteOrder Order, std::size_t Offset, unsigned Hi, unsigned Lo>
  auto get(Field<Layout, Order, Offset, Hi, Lo> f) const {
    return f.read(data_);
  }
  template <class Inner, std::size_t Offset>
  View<Inner> get(SubStruct<Layout, Inner, Offset>) const {
    return View<Inner>(std::span(data_ + Offset, Inner::kSize));
  }
  template <std::size_t Offset, std::size_t Size>
  std::span<const std::byte, Size> get(ByteField<Layout, Offset, Size>) const {
    return std::span<const std::byte, Size>(data_ + Offset, Size);
  }
  std::span<const std::byte> bytes() const { return {data_, Layout::kSize}; }

 private:
  const std::byte* data_;
};

/// Writable view of a structure in memory.
template <class Layout>
class MutableView {
 public:
  /// @pre bytes.size() >= Layout::kSize
  explicit MutableView(std::span<std::byte> bytes) : data_(bytes.data()) {
    SOFTHCA_HOT_ASSERT(bytes.size() >= Layout::kSize);
  }

  operator View<Layout>() const { return View<Layout>(bytes()); }

  template <class F>
  auto get(F f) const {
    return View<Layout>(bytes()).get(f);
  }
  template <ByteOrder Order, std::size_t Offset, unsigned Hi, unsigned Lo>
  void set(Field<Layout, Order, Offset, Hi, Lo> f,
           typename Field<Layout, Order, Offset, Hi, Lo>::Word value) const {
    f.write(data_, value);
  }
  template <class Inner, std::size_t Offset>
  MutableView<Inner> sub(SubStruct<Layout, Inner, Offset>) const {
    return MutableView<Inner>(std::span(data_ + Offset, Inner::kSize));
  }
  template <std::size_t Offset, std::size_t Size>
  std::span<std::byte, Size> sub(ByteField<Layout, Offset, Size>) const {
    return std::span<std::byte, Size>(data_ + Offset, Size);
  }
  std::span<std::byte> bytes() const { return {data_, Layout::kSize}; }

 private:
  std::byte* data_;
};

/// A structure with its own storage, initially zero.
template <class Layout>
class Struct : public MutableView<Layout> {
 public:
  Struct() : MutableView<Layout>(std::span<std::byte>(storage_, Layout::kSize)) {}
  Struct(const Struct&) = delete;
  Struct& operator=(const Struct&) = delete;

 private:
  alignas(8) std::byte storage_[Layout::kSize] = {};
};

}  // namespace softhca::util
