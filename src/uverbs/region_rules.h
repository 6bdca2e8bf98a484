// Rules of a registration: what Linux checks, pins and counts before the device gets a key.
#pragma once

#include <rdma/ib_user_verbs.h>

#include "uverbs/locked_memory.h"
#include "uverbs/request.h"
#include "uverbs/user_memory.h"

namespace softhca::uverbs {

/// Implicit on-demand paging: the key covers all memory that the program has or will have, at its
/// own addresses.
bool is_implicit(const ib_uverbs_reg_mr& in);
/// The checks of ib_uverbs_reg_mr, and those of regions without a page list.
Errno check_region(const ib_uverbs_reg_mr& in);
/// Makes sure that pinned pages are present. Pages on demand come when the device touches them.
Errno populate_region(const UserMemory& memory, const ib_uverbs_reg_mr& in);
/// Counts pinned pages as locked memory. Pages on demand do not count.
Errno lock_region(const UserMemory& memory, const ib_uverbs_reg_mr& in, LockedPages& pages);

}  // namespace softhca::uverbs
