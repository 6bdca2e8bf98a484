#include "door/card/frame_loss.h"

#include <charconv>

namespace softhca::door {

/// Independent of the program's locale.
std::optional<FrameLoss> FrameLoss::read(std::string_view word) {
  FrameLoss loss;
  const auto* const last = word.data() + word.size();
  const auto probability = std::from_chars(word.data(), last, loss.probability);
  if (probability.ec != std::errc() || probability.ptr == last || *probability.ptr != ',') {
    return std::nullopt;
  }
  const auto seed = std::from_chars(probability.ptr + 1, last, loss.seed);
  if (seed.ec != std::errc() || seed.ptr != last) return std::nullopt;
  const bool fits = loss.probability >= 0 && loss.probability <= 1;
  return fits ? std::optional(loss) : std::nullopt;
}

}  // namespace softhca::door
