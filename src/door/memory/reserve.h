// A reserve of memory for the calls that are being served. Without a reserve a call fails before it
// changes anything. A call that has begun uses the reserve, since neither the device nor a
// destructor can stop in the middle.
#pragma once

#include <cstddef>

namespace softhca::door {

/// From now on an allocation of this library that finds no memory uses up the reserve.
void keep_reserve();
/// Restores the reserve if it was used. False: there is no memory, and no call should begin.
bool hold_reserve();
/// Whether an allocation of this size succeeds now.
bool has_room(std::size_t bytes);

}  // namespace softhca::door
