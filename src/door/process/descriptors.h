// Descriptors that the library gives to the program are ordinary files and pipes; the interposed
// calls make them behave like Linux's character devices. For any other descriptor one load shows
// that the call must pass.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softhca::door {

class Descriptors {
 public:
  /// Records that `fd` was given to the program.
  static void note(int fd);
  static void forget(int fd);
  /// Forgets all from `first` to `last`. True: some were recorded.
  static bool forget_all(unsigned first, unsigned last);
  /// False: the library has certainly not given `fd` to the program.
  static bool may_be_ours(int fd) {
    const auto at = static_cast<unsigned>(fd);
    return at < kMax && noted_[at].load(std::memory_order_relaxed);
  }

 private:
  /// Higher descriptors behave as plain files.
  static constexpr unsigned kMax = 65536;
  static constinit inline std::array<std::atomic<bool>, kMax> noted_{};
};

}  // namespace softhca::door
