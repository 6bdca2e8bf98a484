// Progress in the program's own calls: whoever polls a CQ lets the device work first, so that
// nobody has to wait for another thread (host-door contract 12.5).
#pragma once

#include <cstdint>

namespace softhca::door {

/// Of the context that the CQ with this user handle, an ibv_cq of libibverbs, belongs to: its
/// poll_cq lets the device work from now on, and so does the CQ's own start_poll, if it is an
/// extended one. Does nothing if it is something else. `fd`: of the context.
void wrap_poll(std::uint64_t user_handle, int fd);
/// Called by the wrapped ones.
void progress_in_call();

}  // namespace softhca::door
