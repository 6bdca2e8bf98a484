// The P_Keys of a port (IBTA 10.9).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/infiniband/constants.h"

namespace softhca::rdma {

/// Initially, the table has the default P_Key only.
class PkeyTable {
 public:
  /// Replaces all P_Keys. False if the table had these already.
  bool set(std::span<const std::uint16_t> pkeys) {
    if (std::ranges::equal(pkeys, pkeys_)) return false;
    pkeys_.assign(pkeys.begin(), pkeys.end());
    return true;
  }
  /// The P_Key at this index. Beyond the table's end, an invalid one.
  std::uint16_t get(std::size_t index) const { return index < pkeys_.size() ? pkeys_[index] : 0; }
  /// True if some P_Key of the table may talk with that one.
  bool has_match(std::uint16_t pkey) const {
    return std::ranges::any_of(
        pkeys_, [pkey](std::uint16_t own) { return spec::infiniband::may_talk(pkey, own); });
  }

 private:
  std::vector<std::uint16_t> pkeys_{spec::infiniband::kDefaultPkey};
};

}  // namespace softhca::rdma
