// Memory that is kept for what must be done when there is none left: giving back what somebody had
// who asked for too much.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace softhca::util {

/// Of the process. Not to be used by several threads at once.
class MemoryReserve {
 public:
  /// More than a device needs to be as after power-on.
  static constexpr std::size_t kSize = std::size_t{16} << 20;

  static MemoryReserve& instance();

  /// Calls `step`. If there is no memory for it, the reserve is given up for a second attempt, so
  /// that `step` must be fit to begin anew where it failed.
  template <class Step>
  void use(Step step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      give_up();
      step();
    }
  }
  /// Keeps memory again, if it was given up and there is some now.
  void refill();
  bool empty() const { return block_ == nullptr; }

  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

 private:
  MemoryReserve() { refill(); }
  void give_up() { block_.reset(); }

  std::unique_ptr<std::byte[]> block_;
};

}  // namespace softhca::util
