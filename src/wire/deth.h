// The datagram extended transport header: UD packets (IBTA 9.3.2).
#pragma once

#include "spec/infiniband/transport.h"
#include "wire/ids.h"

namespace softhca::wire {

using DethLayout = spec::infiniband::deth;

struct Deth {
  QKey qkey;
  Qpn src_qp;

  static Deth parse(util::View<DethLayout> view) {
    return {QKey(view.get(DethLayout::qkey)), Qpn(view.get(DethLayout::src_qp))};
  }
  void emit(util::MutableView<DethLayout> out) const {
    std::memset(out.bytes().data(), 0, DethLayout::kSize);
    out.set(DethLayout::qkey, qkey.value());
    out.set(DethLayout::src_qp, src_qp.value());
  }
  friend bool operator==(const Deth&, const Deth&) = default;
};

}  // namespace softhca::wire
