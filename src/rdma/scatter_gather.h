// Payload transfer between frames and registered memory. Every access checks its key each time: the
// key may have gone since the request was posted, and a retransmission reads memory again.
#pragma once

#include <cstdint>
#include <span>

#include "rdma/memory_key.h"
#include "wire/frame.h"

namespace softhca::rdma {

std::uint64_t total_length(std::span<const Sge> sges);

// Functions that return a Reason give why the access failed, or kNone.

/// Checks all SGEs for `access`; inline ones need no key.
Reason check_all(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                 std::uint8_t access);

/// Collects a packet's payload in one walk over the pieces of its keys, whose number a guest
/// chooses: by reference, and as a copy from the first piece on for which that is not possible.
class Gathering {
 public:
  /// `length`: bytes of all parts.
  Gathering(KeyTable& keys, std::size_t length, wire::Frame& frame)
      : keys_(keys), length_(length), frame_(frame) {}
  /// Continues after own(). `rest`: the bytes of the frame's own memory that are not filled yet.
  Gathering(KeyTable& keys, wire::Frame& frame, std::span<std::byte> rest)
      : keys_(keys), length_(0), frame_(frame), copies_(true), rest_(rest) {}

  /// Appends [address, address + length) behind a key that has passed check().
  Reason add(MemoryKey& key, std::uint64_t address, std::uint64_t length);
  /// Appends a copy of `bytes`.
  void add(std::span<const std::byte> bytes);
  /// Copies what the frame refers to, so that it may wait for the rest. @pre not all was added
  void own() { (void)room(0); }

 private:
  void add(const MemoryPiece& piece);
  /// The next `size` bytes of the copy, which begins now unless it has.
  std::span<std::byte> room(std::size_t size);

  KeyTable& keys_;
  const std::size_t length_;
  wire::Frame& frame_;
  bool copies_ = false;
  bool reachable_ = true;      ///< all memory so far
  std::span<std::byte> rest_;  ///< of the copy
};

/// Makes [offset, offset + length) of the SGEs the frame's payload: by reference if possible, else
/// copied into the frame's own memory. `inline_data`: the bytes that inline SGEs refer to.
Reason gather(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
              std::span<const std::byte> inline_data, std::uint64_t offset, std::size_t length,
              wire::Frame& frame);
/// The same for [address, address + length) behind one key, which has passed check().
Reason gather(KeyTable& keys, MemoryKey& key, std::uint64_t address, std::size_t length,
              wire::Frame& frame);

/// Adds [offset, offset + length) of the SGEs to the frame's payload, by reference only. False if a
/// check fails, memory is not local, or the frame has too few free segments; the frame may then
/// hold a part.
[[nodiscard]] bool refer(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                         std::uint64_t offset, std::size_t length, wire::Frame& frame);
/// The same for [address, address + length) behind one key, which has passed check().
[[nodiscard]] bool refer(KeyTable& keys, MemoryKey& key, std::uint64_t address,
                         std::uint64_t length, wire::Frame& frame);

/// Copies [from, from + length) of the frame to [offset, offset + length) of the SGEs. @pre the
/// SGEs have that much room
Reason scatter(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges, std::uint64_t offset,
               const wire::Frame& frame, std::size_t from, std::size_t length);
/// The same with a byte span instead of a frame.
Reason scatter(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges, std::uint64_t offset,
               std::span<const std::byte> bytes);
/// Copies [from, from + length) of the frame to `address` behind one key, which has passed check().
Reason scatter(KeyTable& keys, MemoryKey& key, std::uint64_t address, const wire::Frame& frame,
               std::size_t from, std::size_t length);

}  // namespace softhca::rdma
