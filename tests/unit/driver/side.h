// Parts that the sides of tests with drivers share: memory by offset, completions as they arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "driver/work.h"
#include "lab/network.h"

namespace softhca::driver::test {

inline constexpr std::uint32_t kPsnA = 0xfffffe;  ///< wraps after two packets
inline constexpr std::uint32_t kPsnB = 0x123456;

/// The memory of a side, by offset.
struct SideMemory {
  explicit SideMemory(std::size_t size) : memory(size) {}

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
  }
  std::span<std::byte> bytes(std::size_t offset, std::size_t length) {
    return std::span(memory).subspan(offset, length);
  }

  std::vector<std::byte> memory;
};

/// The next `count` completions of a driver's completion queue, or fewer if no more arrive.
template <class Queue>
std::vector<Completion> wait(lab::Network& network, Queue& cq, std::size_t count = 1) {
  std::vector<Completion> found;
  network.run_until([&] {
    Completion next;
    while (found.size() < count && cq.poll({&next, 1}) == 1) found.push_back(next);
    return found.size() >= count;
  });
  return found;
}

}  // namespace softhca::driver::test
