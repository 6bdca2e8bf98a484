// Deliberate frame loss: `softhca run --loss`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace softhca::door {

struct FrameLoss {
  double probability = 0;  ///< for each frame that a device sends
  std::uint64_t seed = 1;  ///< of the random choice

  /// Parses "<probability>,<seed>", the value of SOFTHCA_LOSS.
  static std::optional<FrameLoss> read(std::string_view word);
  /// The same. Any other value: no loss.
  static FrameLoss parse(std::string_view word) { return read(word).value_or(FrameLoss{}); }
};

}  // namespace softhca::door
