// Immediate data (IBTA 9.3.6). Its four bytes belong to the user; the number here is the big-endian
// one, as completion queue entries have it.
#pragma once

#include "util/field.h"

namespace softhca::wire {

struct ImmDtLayout {
  static constexpr std::size_t kSize = 4;
  static constexpr util::Field<ImmDtLayout, util::ByteOrder::kBig, 0, 31, 0> data{};
};

struct ImmDt {
  std::uint32_t data = 0;

  static ImmDt parse(util::View<ImmDtLayout> view) { return {view.get(ImmDtLayout::data)}; }
  void emit(util::MutableView<ImmDtLayout> out) const { out.set(ImmDtLayout::data, data); }
  friend bool operator==(const ImmDt&, const ImmDt&) = default;
};

}  // namespace softhca::wire
