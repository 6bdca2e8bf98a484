// Counts the allocations of the test program, so that a test can require that there are none.
#pragma once

#include <cstddef>

namespace softhca::fabric {

// Thread sanitizer has an operator new of its own that cannot be replaced. With it, the count never
// changes.
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
/// Bytes held from operator new, with the allocator's rounding.
std::ptrdiff_t allocated_bytes();

}  // namespace softhca::fabric
