// Counts the allocations of the test program, so that a test can demand that there is none.
#pragma once

#include <cstddef>

namespace softhca::fabric {

// The thread sanitizer brings an operator new of its own that cannot be replaced: there the count
// stands still.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SOFTHCA_OPERATOR_NEW_IS_TAKEN
#endif
#endif
#ifdef SOFTHCA_OPERATOR_NEW_IS_TAKEN
inline constexpr bool kAllocationsCount = false;
#else
inline constexpr bool kAllocationsCount = true;
#endif

/// Calls of operator new so far.
std::size_t allocation_count();
/// Bytes that the program has of operator new, with what the allocator rounds up.
std::ptrdiff_t allocated_bytes();

}  // namespace softhca::fabric
