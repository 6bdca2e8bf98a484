// The invalidate extended transport header: the key that a SEND with Invalidate invalidates
// (IBTA 9.3.7).
#pragma once

#include "spec/infiniband/transport.h"
#include "wire/ids.h"

namespace softhca::wire {

using IethLayout = spec::infiniband::ieth;

struct Ieth {
  RKey rkey;

  static Ieth parse(util::View<IethLayout> view) { return {RKey(view.get(IethLayout::r_key))}; }
  void emit(util::MutableView<IethLayout> out) const { out.set(IethLayout::r_key, rkey.value()); }
  friend bool operator==(const Ieth&, const Ieth&) = default;
};

}  // namespace softhca::wire
