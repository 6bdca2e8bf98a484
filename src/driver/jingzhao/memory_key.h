// A memory region (JingZhao 3.2.3): an MPT entry, with its pages in the MTT.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/access.h"
#include "driver/dma_memory.h"

namespace softhca::driver::jingzhao {

class Hca;

using driver::MemoryAccess;

class MemoryKey {
 public:
  /// Registers memory of the program. Work requests, here and at the peer, name its bytes by their
  /// addresses in this program. The memory must not move while the key lives.
  static util::Result<std::unique_ptr<MemoryKey>> register_memory(Hca& hca, std::uint32_t pd,
                                                                  std::span<std::byte> memory,
                                                                  MemoryAccess access);
  /// A key for the memory of a queue, from its first byte on: the document names that memory by the
  /// key alone.
  static util::Result<std::unique_ptr<MemoryKey>> of_queue(Hca& hca, std::uint32_t pd,
                                                           const DmaBuffer& memory);
  ~MemoryKey();
  MemoryKey(const MemoryKey&) = delete;
  MemoryKey& operator=(const MemoryKey&) = delete;

  /// The lkey for own requests, and the rkey for requests of the peer.
  std::uint32_t key() const { return key_; }
  /// HW2SW_MPT. The destructor does it too, but cannot report an error.
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
