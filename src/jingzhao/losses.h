// Resources that queue pairs have lost, by number. A lost resource may be back before all QPs are
// checked, so each has the number of its last loss.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace softhca::jingzhao {

class Losses {
 public:
  /// Resources [first, end) are lost. `loss`: number of the loss, above all earlier ones.
  void note(std::uint64_t loss, std::uint32_t first, std::uint32_t end) {
    if (first >= end) return;
    if (last_.size() < end) last_.resize(end);
    const auto at = [this](std::uint32_t number) {
      return last_.begin() + static_cast<std::ptrdiff_t>(number);
    };
    std::fill(at(first), at(end), loss);
  }
  /// True if the resource was lost after loss number `loss`.
  bool after(std::uint64_t loss, std::uint32_t number) const {
    return number < last_.size() && last_[number] > loss;
  }

 private:
  std::vector<std::uint64_t> last_;  ///< by number; 0: never lost
};

}  // namespace softhca::jingzhao
