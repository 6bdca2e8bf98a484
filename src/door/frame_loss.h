// Frames that are lost on purpose: `softhca run --loss`.
#pragma once

#include <cstdint>
#include <string_view>

namespace softhca::door {

struct FrameLoss {
  double probability = 0;  ///< of each frame that a device sends
  std::uint64_t seed = 1;  ///< of which frames these are

  /// "<probability>,<seed>", the word of SOFTHCA_LOSS. What is no such word loses nothing.
  static FrameLoss parse(std::string_view word);
};

}  // namespace softhca::door
