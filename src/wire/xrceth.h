// The XRC extended transport header: the shared receive queue of an XRC request (IBTA Annex A14).
#pragma once

#include "util/field.h"
#include "wire/ids.h"

namespace softhca::wire {

struct XrcEthLayout {
  static constexpr std::size_t kSize = 4;
  template <unsigned Hi, unsigned Lo>
  using Bits = util::Field<XrcEthLayout, util::ByteOrder::kBig, 0, Hi, Lo>;
  static constexpr Bits<31, 24> reserved{};
  static constexpr Bits<23, 0> xrcsrq{};
};

struct XrcEth {
  XrcSrqn xrcsrq;

  static XrcEth parse(util::View<XrcEthLayout> view) {
    return {XrcSrqn(view.get(XrcEthLayout::xrcsrq))};
  }
  void emit(util::MutableView<XrcEthLayout> out) const {
    out.set(XrcEthLayout::reserved, 0);
    out.set(XrcEthLayout::xrcsrq, xrcsrq.value());
  }
  friend bool operator==(const XrcEth&, const XrcEth&) = default;
};

}  // namespace softhca::wire
