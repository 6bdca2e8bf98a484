// Memory that the program unmaps while the device may still use it (kernel interface 9.5).
// Hardware has such memory pinned. Here it is gone, so its keys and objects are taken away as well.
#pragma once

#include <cstdint>

#include "uverbs/object_table.h"

namespace softhca::uverbs {

/// The page at `page` is no longer mapped. Revokes the keys and destroys the DevX objects that use
/// it. If the access was a write, QPs of the key's protection domain end in the error state.
void lose_memory(Objects& objects, std::uint64_t page, bool was_write);

}  // namespace softhca::uverbs
