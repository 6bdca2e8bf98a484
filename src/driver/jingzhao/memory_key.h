// A memory region (JingZhao 3.2.3): an MPT entry, and its pages in the MTT.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/dma_memory.h"

namespace softhca::driver::jingzhao {

class Hca;

/// What may be done with memory; reading it for own requests always may.
struct MemoryAccess {
  bool local_write = true;  ///< receives, results of reads and atomics
  bool remote_read = false;
  bool remote_write = false;
  bool remote_atomic = false;
};

class MemoryKey {
 public:
  /// Registers memory of the program. Work requests, here and at the peer, name its bytes by
  /// their addresses in this program. The memory must stay where it is as long as the key lives.
  static util::Result<std::unique_ptr<MemoryKey>> register_memory(Hca& hca, std::uint32_t pd,
                                                                  std::span<std::byte> memory,
                                                                  MemoryAccess access);
  /// The memory of a queue, from its first byte on: the document names it by the key alone.
  static util::Result<std::unique_ptr<MemoryKey>> of_queue(Hca& hca, std::uint32_t pd,
                                                           const DmaBuffer& memory);
  ~MemoryKey();
  MemoryKey(const MemoryKey&) = delete;
  MemoryKey& operator=(const MemoryKey&) = delete;

  /// For own requests (lkey), and to be told to the peer for its own (rkey).
  std::uint32_t key() const { return key_; }
  /// HW2SW_MPT. The destructor does it too, but cannot tell of an error.
  util::Result<void> destroy();

 private:
  struct Region {
    std::uint64_t start;
    std::uint64_t length;
    std::uint64_t first_page;  ///< bus address
    std::uint64_t pages;
  };
  explicit MemoryKey(Hca& hca) : hca_(hca) {}
  util::Result<void> install(std::uint32_t pd, const Region& region, MemoryAccess access);
  util::Result<void> write_pages(std::uint64_t first_page);

  Hca& hca_;
  DmaMapping mapping_;
  std::uint32_t index_ = 0;
  std::uint32_t key_ = 0;
  std::uint64_t first_mtt_ = 0;
  std::uint64_t mtts_ = 0;
  bool has_index_ = false;
  bool exists_ = false;
};

}  // namespace softhca::driver::jingzhao
