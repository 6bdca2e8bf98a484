// The XRC extended transport header: the shared receive queue of an XRC request (IBTA Annex A14).
#pragma once

#include "spec/infiniband/transport.h"
#include "wire/ids.h"

namespace softhca::wire {

using XrcEthLayout = spec::infiniband::xrceth;

struct XrcEth {
  XrcSrqn xrc_srq;

  static XrcEth parse(util::View<XrcEthLayout> view) {
    return {XrcSrqn(view.get(XrcEthLayout::xrc_srq))};
  }
  void emit(util::MutableView<XrcEthLayout> out) const {
    std::memset(out.bytes().data(), 0, XrcEthLayout::kSize);
    out.set(XrcEthLayout::xrc_srq, xrc_srq.value());
  }
  friend bool operator==(const XrcEth&, const XrcEth&) = default;
};

}  // namespace softhca::wire
