// Copying between two pieces of local memory, as fast as the memory system allows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca::sdxi {

/// Copies from here on go past the caches: they would find nothing of the target there, and leave
/// nothing of anything else. Bytes; the size of the largest cache.
std::uint64_t streaming_from();

/// One piece of a copy of `whole` bytes. The pieces may overlap: software shall not ask for it
/// (SDXI 5.6), and then the target is undefined, but nothing else is touched.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t size, std::uint64_t whole);

}  // namespace softhca::sdxi
