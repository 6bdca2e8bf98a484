// Progress within the program's own calls: polling a CQ first drives the device, so the program
// need not wait for another thread (kernel interface 12.5).
#pragma once

#include <cstdint>

namespace softhca::door {

/// Wraps the polls of the context to which the CQ with this user handle, an ibv_cq of libibverbs,
/// belongs. Its poll_cq drives the device from now on; so does start_poll of the CQ itself if that
/// is an extended one. Any other handle is ignored. `fd`: of the context.
void wrap_poll(std::uint64_t user_handle, int fd);
/// Called by the wrappers.
void progress_in_call();

}  // namespace softhca::door
