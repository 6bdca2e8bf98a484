// The completion status blocks of one context (SDXI 4.4, 6.1.2): which are in use, and which of
// them will never complete.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/sdxi/descriptor.h"

namespace softhca::driver::sdxi {

/// Identifies a submitted descriptor until Context::wait() returns.
class Completion {
 public:
  Completion() = default;

 private:
  friend class CompletionBlocks;
  Completion(std::uint32_t block, std::uint32_t use) : block_(block), use_(use) {}
  std::uint32_t block_ = 0;
  std::uint32_t use_ = 0;  ///< number of earlier uses of the block
};

class CompletionBlocks {
 public:
  static constexpr std::uint32_t kCount = 256;

  util::Result<void> allocate(Host& host);
  /// Takes a block with signal = 1 (SDXI 4.4.2). Fails if all are in use.
  util::Result<Completion> take();
  /// Frees a block to which the function will not write any more. No effect on one that was given
  /// up.
  void give_back(const Completion& completion);
  /// The context has stopped: descriptors not completed yet never will be, and their blocks are
  /// freed.
  void give_up();

  bool given_up(const Completion& completion) const;
  /// True if the descriptor has ended, with or without error, or was given up.
  bool ended(const Completion& completion) const;
  /// CST_BLK.er.
  bool failed(const Completion& completion) const;
  pcie::Iova iova(const Completion& completion) const;

  /// The memory itself, for a caller that must keep it longer.
  DmaBuffer& memory() { return memory_; }

 private:
  struct Use {
    std::uint32_t number = 0;
    bool taken = false;
  };

  std::span<std::byte> bytes(std::uint32_t block) const;
  bool has_signaled(std::uint32_t block) const;
  void free(std::uint32_t block);

  DmaBuffer memory_;
  std::vector<Use> uses_;  ///< indexed by block
  std::vector<std::uint32_t> free_;
};

}  // namespace softhca::driver::sdxi
