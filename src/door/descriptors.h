// The descriptors that the program has of us are files of the kernel's own kind; here they behave
// as those of Linux' character devices. For every call of the program on a descriptor: one look
// says that it is none of ours.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softhca::door {

class Descriptors {
 public:
  /// `fd` was given to the program.
  static void note(int fd);
  static void forget(int fd);
  /// All from `first` to `last`. True: some were noted.
  static bool forget_all(unsigned first, unsigned last);
  /// False: certainly not.
  static bool may_be_ours(int fd) {
    const auto at = static_cast<unsigned>(fd);
    return at < kMax && noted_[at].load(std::memory_order_relaxed);
  }

  struct Kind {
    bool device = false;     ///< a device file
    std::size_t record = 0;  ///< bytes of an event, of a descriptor of events
  };
  /// What `fd` is now: the program may have put something else in its place.
  static Kind kind(int fd);

 private:
  /// Higher ones behave as files.
  static constexpr unsigned kMax = 65536;
  static constinit inline std::array<std::atomic<bool>, kMax> noted_{};
};

}  // namespace softhca::door
