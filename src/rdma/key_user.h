// The users of memory keys, and the source of keys that a table does not hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pcie/dma_space.h"
#include "rdma/reasons.h"
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

/// The identity and permissions of an accessor.
struct KeyUser {
  Pd pd;
  Qpn qpn;
  bool reserved_lkey = false;  ///< the QP may use the reserved LKey
  /// Accesses memory only through read() and write() (or code on top of them), and handles
  /// signature errors. Others cannot use signature keys.
  bool may_sign = false;
};

class MemoryKey;

/// Result of KeyTable::check().
struct KeyCheck {
  MemoryKey* key;  ///< null: the access is refused
  Reason reason;   ///< the check that refused it

  explicit operator bool() const { return key != nullptr; }
};

/// A part of a key's memory that is contiguous on the bus.
struct MemoryPiece {
  std::byte* host;  ///< null: reach it with DmaSpace::read and write
  pcie::Iova iova;
  std::size_t size;      ///< bytes
  bool dropped = false;  ///< there is no memory: what is written here is lost. `host` is null
};

/// Loads keys into a table on demand: a device whose keys are in host memory keeps only the used
/// ones in the table.
class KeySource {
 public:
  virtual ~KeySource() = default;
  /// A lookup of this index missed. Inserts the key into the table if it exists. No key may leave
  /// the table meanwhile.
  virtual void bring(std::uint32_t index) = 0;
  /// Bus address of page `number` of a key that bring() has inserted with its first pages only
  /// (MemoryKey::set_rest). Nothing if it cannot be read. No key may leave the table meanwhile.
  virtual std::optional<pcie::Iova> bring_page(MKey /*key*/, std::uint64_t /*number*/) {
    return std::nullopt;
  }
};

}  // namespace softhca::rdma
