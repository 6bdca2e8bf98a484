#include "ethernet/padding.h"

#include <array>

namespace softhca::ethernet {

void pad_to_minimum(wire::Frame& frame) {
  static constexpr std::array<std::byte, kFrameSizeMin> kZeros{};
  assert(frame.tail().empty());
  if (frame.size() >= kFrameSizeMin) return;
  const auto missing = std::span(kZeros).first(kFrameSizeMin - frame.size());
  if (frame.segments().empty()) {
    const auto size = frame.head().size();
    std::memset(frame.resize_head(kFrameSizeMin).data() + size, 0, missing.size());
    return;
  }
  if (frame.add_segment(missing)) return;
  frame.own_segments();
  const bool added = frame.add_segment(missing);
  assert(added);
  (void)added;
}

}  // namespace softhca::ethernet
