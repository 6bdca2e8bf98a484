// The invalidate extended transport header: the key that a SEND with Invalidate invalidates
// (IBTA 9.3.7).
#pragma once

#include "util/field.h"
#include "wire/ids.h"

namespace softhca::wire {

struct IethLayout {
  static constexpr std::size_t kSize = 4;
  static constexpr util::Field<IethLayout, util::ByteOrder::kBig, 0, 31, 0> rkey{};
};

struct Ieth {
  RKey rkey;

  static Ieth parse(util::View<IethLayout> view) { return {RKey(view.get(IethLayout::rkey))}; }
  void emit(util::MutableView<IethLayout> out) const { out.set(IethLayout::rkey, rkey.value()); }
  friend bool operator==(const Ieth&, const Ieth&) = default;
};

}  // namespace softhca::wire
