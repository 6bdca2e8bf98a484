// The RDMA extended transport header: where an RDMA WRITE or READ goes (IBTA 9.3.3).
#pragma once

#include "util/field.h"
#include "wire/ids.h"

namespace softhca::wire {

struct RethLayout {
  static constexpr std::size_t kSize = 16;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<RethLayout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 63, 0> virtual_address{};
  static constexpr Bits<8, 31, 0> rkey{};
  static constexpr Bits<12, 31, 0> dma_length{};
};

struct Reth {
  std::uint64_t virtual_address = 0;
  RKey rkey;
  std::uint32_t dma_length = 0;

  static Reth parse(util::View<RethLayout> view) {
    return {view.get(RethLayout::virtual_address), RKey(view.get(RethLayout::rkey)),
            view.get(RethLayout::dma_length)};
  }
  void emit(util::MutableView<RethLayout> out) const {
    out.set(RethLayout::virtual_address, virtual_address);
    out.set(RethLayout::rkey, rkey.value());
    out.set(RethLayout::dma_length, dma_length);
  }
  friend bool operator==(const Reth&, const Reth&) = default;
};

}  // namespace softhca::wire
