// Memory keys: what an LKey or RKey stands for, and the check of every access through one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pcie/dma_space.h"
#include "rdma/types.h"

namespace softhca::rdma {

/// Access rights, one bit each.
enum Access : std::uint8_t {
  kLocalRead = 1,
  kLocalWrite = 2,
  kRemoteRead = 4,
  kRemoteWrite = 8,
  kRemoteAtomic = 16,
};

/// One memory key, as the device decoded its context. Its pages are resolved to host memory when
/// first used, kept as extents where they are contiguous, and dropped when a DMA mapping goes.
class MemoryKey {
 public:
  struct Attributes {
    MKey key;
    Pd pd;
    std::uint8_t access = 0;       ///< Access bits
    std::optional<Qpn> only_qpn;   ///< the one QP that may use it; nothing: any
    std::uint64_t start = 0;       ///< first virtual address
    std::uint64_t length = 0;      ///< bytes
    bool whole_space = false;      ///< length64: every address is in range
    bool free = false;             ///< invalidated: every access fails
    /// Bus address of each page of 2^log_page_size bytes; the first covers `start`. Empty: bus address = virtual address.
    std::vector<pcie::Iova> pages;
    unsigned log_page_size = 12;
  };
  // ...
};

}  // namespace softhca::rdma
