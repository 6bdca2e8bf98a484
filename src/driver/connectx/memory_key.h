// A memory key (PRM 6): the right to access a piece of memory in work requests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "driver/access.h"
#include "driver/connectx/protection_domain.h"
#include "driver/dma_memory.h"

namespace softhca::driver::connectx {

using driver::MemoryAccess;

class MemoryKey {
 public:
  /// Registers memory of the program. Work requests, here and at the peer, name its bytes by their
  /// addresses in this program. The memory must not move while the key lives.
  static util::Result<std::unique_ptr<MemoryKey>> register_memory(ProtectionDomain& pd,
                                                                  std::span<std::byte> memory,
                                                                  MemoryAccess access);
  /// A key for all DMA memory of the host (PRM 6.4.1, mode PA): requests name bus addresses, such
  /// as DmaBuffer::iova().
  static util::Result<std::unique_ptr<MemoryKey>> all_dma_memory(ProtectionDomain& pd,
                                                                 MemoryAccess access = {});

  ~MemoryKey();
  MemoryKey(const MemoryKey&) = delete;
  MemoryKey& operator=(const MemoryKey&) = delete;

  /// The lkey for own requests, and the rkey for requests of the peer.
  std::uint32_t key() const { return key_; }
  /// DESTROY_MKEY. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

 private:
  explicit MemoryKey(Hca& hca) : hca_(hca) {}
  template <class Input>
  util::Result<void> create_on_device(Input& in);

  Hca& hca_;
  DmaMapping mapping_;
  std::uint32_t key_ = 0;
  bool exists_ = false;
};

}  // namespace softhca::driver::connectx
