// The datagram extended transport header: UD packets (IBTA 9.3.2).
#pragma once

#include "util/field.h"
#include "wire/ids.h"

namespace softhca::wire {

struct DethLayout {
  static constexpr std::size_t kSize = 8;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<DethLayout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 31, 0> qkey{};
  static constexpr Bits<4, 31, 24> reserved{};
  static constexpr Bits<4, 23, 0> src_qp{};
};

struct Deth {
  QKey qkey;
  Qpn src_qp;

  static Deth parse(util::View<DethLayout> view) {
    return {QKey(view.get(DethLayout::qkey)), Qpn(view.get(DethLayout::src_qp))};
  }
  void emit(util::MutableView<DethLayout> out) const {
    out.set(DethLayout::qkey, qkey.value());
    out.set(DethLayout::reserved, 0);
    out.set(DethLayout::src_qp, src_qp.value());
  }
  friend bool operator==(const Deth&, const Deth&) = default;
};

}  // namespace softhca::wire
