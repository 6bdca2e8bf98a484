// Memory for the calls that are being served. A call that finds none begins nothing and fails; one
// that has begun goes on with what is kept for it, since neither the device nor a destructor can
// stop in the middle.
#pragma once

#include <cstddef>

namespace softhca::door {

/// From now on an allocation of ours that finds no memory gets what is kept.
void keep_reserve();
/// Keeps memory again, if it was used. False: there is none, and nothing should begin.
bool hold_reserve();
/// Whether so much could be had just now.
bool has_room(std::size_t bytes);

}  // namespace softhca::door
