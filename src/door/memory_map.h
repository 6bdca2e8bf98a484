// The kernel's view of a page of this process. Safe in signal handlers: nothing is allocated, and
// no libc function that takes a lock is called.
#pragma once

#include <cstdint>
#include <optional>

namespace softhca::door {

/// The protection (of mprotect()) of the mapping at `address`. Nothing if there is none. Linux 6.11
/// finds the mapping by a query; older kernels need a read of /proc/self/maps up to it.
std::optional<int> protection_of(std::uint64_t address);
/// By reading /proc/self/maps.
std::optional<int> protection_by_reading(std::uint64_t address);
/// By query; -1 if the kernel lacks it.
int protection_by_query(std::uint64_t address, std::optional<int>& protection);

}  // namespace softhca::door
