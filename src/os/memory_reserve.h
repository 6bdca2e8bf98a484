// Memory reserved for work that must succeed when memory has run out: freeing the objects of a
// guest that requested too much.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace softhca::os {

/// The reserve of the process. Not to be used by several threads concurrently.
class MemoryReserve {
 public:
  /// More than a device needs to reset to its power-on state.
  static constexpr std::size_t kSize = std::size_t{16} << 20;

  static MemoryReserve& instance();

  /// Calls `step`. If it runs out of memory, the reserve is freed and `step` is called again, so
  /// `step` must be able to restart after a failure.
  template <class Step>
  void use(Step step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      give_up();
      step();
    }
  }
  /// Allocates the reserve again, if it was freed and memory is available now.
  void refill();
  bool empty() const { return block_ == nullptr; }

  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

 private:
  MemoryReserve() { refill(); }
  void give_up() { block_.reset(); }

  std::unique_ptr<std::byte[]> block_;
};

}  // namespace softhca::os
