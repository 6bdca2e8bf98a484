// Deliberate frame loss: `softhca run --loss`.
#pragma once

#include <cstdint>
#include <string_view>

namespace softhca::door {

struct FrameLoss {
  double probability = 0;  ///< for each frame that a device sends
  std::uint64_t seed = 1;  ///< of the random choice

  /// Parses "<probability>,<seed>", the value of SOFTHCA_LOSS. Any other value: no loss.
  static FrameLoss parse(std::string_view word);
};

}  // namespace softhca::door
