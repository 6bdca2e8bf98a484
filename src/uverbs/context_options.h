// The functions by which a context reaches its caller: for the program's descriptors, the file that
// the program maps, the time.
#pragma once

#include <cstdint>
#include <functional>

#include "os/unique_fd.h"
#include "uverbs/clock_page.h"

namespace softhca::uverbs {

struct ContextOptions {
  /// Gives a descriptor to the program. Returns its number there, or -errno.
  std::function<int(os::UniqueFd)> give;
  /// Takes a descriptor back from the program, when a call fails after give().
  std::function<void(int)> take_back;
  /// The identity of the file behind a descriptor of give().
  std::function<std::uint64_t(int)> identify;
  /// A copy of one of the program's descriptors; invalid if the program has no such descriptor.
  std::function<os::UniqueFd(int)> copy;
  /// Called for each new CQ with its user handle.
  std::function<void(std::uint64_t)> made_cq;
  /// Writes to the file that the program maps. Empty: there is no clock page.
  StorePage store = nullptr;
  /// @pre set if `store` is set
  WallClock wall_clock = nullptr;
};

}  // namespace softhca::uverbs
