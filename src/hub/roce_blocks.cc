#include "hub/roce_blocks.h"

namespace softhca::hub {

std::optional<RoceBlock> RoceBlocks::take(util::Time now) {
  if (!resting_.empty() && resting_.front().until <= now) {
    const auto block = resting_.front().block;
    resting_.pop_front();
    return block;
  }
  if (next_ > kLast) return std::nullopt;
  return static_cast<RoceBlock>(next_++);
}

}  // namespace softhca::hub
