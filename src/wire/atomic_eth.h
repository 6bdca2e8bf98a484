// The headers of atomic operations: AtomicETH in the request, AtomicAckETH in the response
// (IBTA 9.3.4, 9.3.5.3).
#pragma once

#include "util/field.h"
#include "wire/ids.h"

namespace softhca::wire {

struct AtomicEthLayout {
  static constexpr std::size_t kSize = 28;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<AtomicEthLayout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 63, 0> virtual_address{};
  static constexpr Bits<8, 31, 0> rkey{};
  static constexpr Bits<12, 63, 0> swap_or_add{};
  static constexpr Bits<20, 63, 0> compare{};
};

struct AtomicEth {
  std::uint64_t virtual_address = 0;
  RKey rkey;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;

  static AtomicEth parse(util::View<AtomicEthLayout> view) {
    using L = AtomicEthLayout;
    return {view.get(L::virtual_address), RKey(view.get(L::rkey)), view.get(L::swap_or_add),
            view.get(L::compare)};
  }
  void emit(util::MutableView<AtomicEthLayout> out) const {
    using L = AtomicEthLayout;
    out.set(L::virtual_address, virtual_address);
    out.set(L::rkey, rkey.value());
    out.set(L::swap_or_add, swap_or_add);
    out.set(L::compare, compare);
  }
  friend bool operator==(const AtomicEth&, const AtomicEth&) = default;
};

struct AtomicAckEthLayout {
  static constexpr std::size_t kSize = 8;
  static constexpr util::Field<AtomicAckEthLayout, util::ByteOrder::kBig, 0, 63, 0> original{};
};

struct AtomicAckEth {
  std::uint64_t original = 0;  ///< what stood at the address before

  static AtomicAckEth parse(util::View<AtomicAckEthLayout> view) {
    return {view.get(AtomicAckEthLayout::original)};
  }
  void emit(util::MutableView<AtomicAckEthLayout> out) const {
    out.set(AtomicAckEthLayout::original, original);
  }
  friend bool operator==(const AtomicAckEth&, const AtomicAckEth&) = default;
};

}  // namespace softhca::wire
