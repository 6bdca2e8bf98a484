// Copying between two pieces of local memory, as fast as the memory system allows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::sdxi {

/// Size in bytes, that of the largest cache, from which copies bypass the caches: such a copy would
/// not find its target there, and would evict everything else.
std::uint64_t streaming_from();

/// Copies one piece of a copy of `whole` bytes. If the pieces overlap, which software must not
/// request (SDXI 5.6), the target's contents are undefined, but nothing else is written.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t size, std::uint64_t whole);

}  // namespace softhca::sdxi
