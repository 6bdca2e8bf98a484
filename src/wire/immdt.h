// Immediate data (IBTA 9.3.6). The four bytes belong to the user; the number here is their
// big-endian value, as in completion queue entries.
#pragma once

#include "spec/infiniband/transport.h"

namespace softhca::wire {

using ImmDtLayout = spec::infiniband::imm_dt;

struct ImmDt {
  std::uint32_t data = 0;

  static ImmDt parse(util::View<ImmDtLayout> view) { return {view.get(ImmDtLayout::immediate)}; }
  void emit(util::MutableView<ImmDtLayout> out) const { out.set(ImmDtLayout::immediate, data); }
  friend bool operator==(const ImmDt&, const ImmDt&) = default;
};

}  // namespace softhca::wire
