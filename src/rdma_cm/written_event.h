// RDMA_USER_CM_CMD_WRITE_CM_EVENT, which the headers of Debian 12 lack.
#pragma once

#include <cstdint>

namespace softhca::rdma_cm {

/// RDMA_USER_CM_CMD_WRITE_CM_EVENT and its rdma_ucm_write_cm_event. The rest of the real union
/// after `arg` is not needed here.
inline constexpr std::uint32_t kWriteEvent = 24;
struct WrittenEvent {
  std::uint32_t id, reserved, event, status;
  std::uint64_t arg;
};
static_assert(sizeof(WrittenEvent) == 24);

}  // namespace softhca::rdma_cm
