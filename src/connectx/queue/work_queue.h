// The wq part of SQ and RQ contexts (PRM Table 55): a ring of strides in host memory and its
// doorbell record.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tl/expected.hpp>

#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/queue/queue_buffer.h"
#include "connectx/queue/work_ring.h"
#include "rdma/types.h"
#include "spec/connectx/raw_queues.h"
#include "util/field.h"

namespace softhca::connectx {

class Device;

/// Bytes of a receive WQE. The largest is max_wqe_sz_rq too.
inline constexpr unsigned kLogReceiveStrideMin = 4;
inline constexpr unsigned kLogReceiveStrideMax = 9;
inline constexpr unsigned kLogSendStride = 6;
/// Strides of a queue: counters have 16 bits, and a full queue must differ from an empty one.
inline constexpr unsigned kLogWorkQueueMax = 15;

struct WorkQueue {
  rdma::Pd pd;
  QueueBuffer buffer;
  TranslationBudget::Reservation translations;  ///< for the buffer
  DoorbellRecord record;
  WorkRing ring;

  std::optional<std::uint32_t> available() { return ring.available(record); }
  bool read(std::uint32_t skip, std::span<std::byte> out) { return ring.read(buffer, skip, out); }
};

/// Checks a wq and maps its ring. `pas` are the bytes behind the context.
tl::expected<WorkQueue, Refusal> make_send_work_queue(Device& device,
                                                      util::View<spec::connectx::wq> wq,
                                                      std::span<const std::byte> pas);
tl::expected<WorkQueue, Refusal> make_receive_work_queue(Device& device,
                                                         util::View<spec::connectx::wq> wq,
                                                         std::span<const std::byte> pas);

}  // namespace softhca::connectx
