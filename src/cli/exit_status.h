// Exit statuses that commands share.
#pragma once

namespace softhca::cli {

/// After Ctrl-C, as shells have it.
inline constexpr int kInterruptedStatus = 130;

}  // namespace softhca::cli
