// What the kernel knows of a page of this process. For a handler of a signal: nothing is allocated,
// and no function of libc that has a lock is called.
#pragma once

#include <cstdint>
#include <optional>

namespace softhca::door {

/// The mapping of `address`: the protection that mprotect() takes. Nothing if there is none.
std::optional<int> protection_of(std::uint64_t address);

}  // namespace softhca::door
