// Those who access memory by its keys, and those who bring keys.
#pragma once

#include <cstddef>
#include <cstdint>

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
inline constexpr std::uint8_t kEveryAccess =
    kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite | kRemoteAtomic;

/// Who wants to access memory, and how.
struct KeyUser {
  Pd pd;
  Qpn qpn;
  bool reserved_lkey = false;  ///< the QP may use the reserved LKey
  /// It moves data by read(), write() and what stands on them, and hears of signature errors.
  bool may_sign = false;
};

/// A part of a key's memory that is contiguous on the bus.
struct MemoryPiece {
  std::byte* host;  ///< null: reach it with DmaSpace::read and write
  pcie::Iova iova;
  std::size_t size;  ///< bytes
};

/// Where the keys are that a table does not hold: a device whose keys stand in host memory brings
/// those that are used.
class KeySource {
 public:
  virtual ~KeySource() = default;
  /// Somebody asks for a key with this index, and the table has none: to be inserted there, if
  /// there is one. No key may leave the table meanwhile.
  virtual void bring(std::uint32_t index) = 0;
};

}  // namespace softhca::rdma
