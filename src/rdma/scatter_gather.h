// Payload between frames and registered memory. Every access is checked by its key, each time: a
// key may have gone since the request was posted, and a retransmission reads the memory anew.
#pragma once

#include <cstdint>
#include <span>

#include "rdma/memory_key.h"
#include "wire/frame.h"

namespace softhca::rdma {

/// Bytes of all pieces together.
std::uint64_t total_length(std::span<const Sge> sges);

// Those that return a Reason say why the access failed, or kNone.

/// Checks all pieces for `access`; inline ones need no key.
Reason check_all(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                 std::uint8_t access);

/// Makes [offset, offset + length) of the pieces the frame's payload: by reference if it can be,
/// otherwise copied into memory of the frame's own. `inline_data` is what inline pieces refer to.
Reason gather(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
              std::span<const std::byte> inline_data, std::uint64_t offset, std::size_t length,
              wire::Frame& frame);
/// The same for [address, address + length) behind one key, which has passed check().
Reason gather(KeyTable& keys, MemoryKey& key, std::uint64_t address, std::size_t length,
              wire::Frame& frame);

/// Adds [offset, offset + length) of the pieces to the frame's payload, by reference alone. False,
/// and the frame has perhaps a part of it, if a check fails, the memory is not local, or the frame
/// has no room for so many segments.
[[nodiscard]] bool refer(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                         std::uint64_t offset, std::size_t length, wire::Frame& frame);
/// The same for [address, address + length) behind one key, which has passed check().
[[nodiscard]] bool refer(KeyTable& keys, MemoryKey& key, std::uint64_t address,
                         std::uint64_t length, wire::Frame& frame);

/// Copies [from, from + length) of the frame to [offset, offset + length) of the pieces.
/// @pre the pieces have so much room
Reason scatter(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges, std::uint64_t offset,
               const wire::Frame& frame, std::size_t from, std::size_t length);
/// The same with bytes instead of a frame.
Reason scatter(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges, std::uint64_t offset,
               std::span<const std::byte> bytes);
/// Copies [from, from + length) of the frame to `address` behind one key, which has passed check().
Reason scatter(KeyTable& keys, MemoryKey& key, std::uint64_t address, const wire::Frame& frame,
               std::size_t from, std::size_t length);

}  // namespace softhca::rdma
