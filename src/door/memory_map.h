// What the kernel knows of a page of this process. For a handler of a signal: nothing is allocated,
// and no function of libc that has a lock is called.
#pragma once

#include <cstdint>
#include <optional>

namespace softhca::door {

/// The mapping of `address`: the protection that mprotect() takes. Nothing if there is none. Linux
/// 6.11 looks for the one mapping; before, all of /proc/self/maps up to it is read.
std::optional<int> protection_of(std::uint64_t address);
/// The same in the old way.
std::optional<int> protection_by_reading(std::uint64_t address);
/// The same in the new way; -1 if the kernel does not know it.
int protection_by_query(std::uint64_t address, std::optional<int>& protection);

}  // namespace softhca::door
