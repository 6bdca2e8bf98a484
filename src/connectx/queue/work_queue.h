// The wq part of SQ and RQ contexts (PRM Table 55): a ring of strides in host memory and its
// doorbell record.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tl/expected.hpp>

#include "connectx/base/limits.h"
#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/queue/mapped_queue.h"
#include "hca/work_ring.h"
#include "spec/connectx/raw_queues.h"
#include "util/field.h"

namespace softhca::connectx {

// Counters have 16 bits. They must distinguish a full queue from an empty one.
static_assert(Limits{}.log_max_wq_sz < 16);

struct WorkQueue {
  Pd pd;
  UarPage uar_page;        ///< doorbell page of a send queue
  bool is_signed = false;  ///< WQEs have signatures
  hca::Use pd_use;
  hca::Use uar_use;
  MappedQueue queue;
  hca::WorkRing ring;

  std::optional<std::uint32_t> available() { return ring.available(queue.record); }
  bool read(std::uint32_t skip, std::span<std::byte> out) {
    return ring.read(queue.memory, skip, out);
  }
};

/// The location of a wq's ring. `pas`: the bytes after the wq.
QueuePlace place_of(util::View<spec::connectx::wq> wq, std::span<const std::byte> pas);

/// Checks wqs and maps their rings. `pas`: the bytes after the context.
class WorkQueueMaker {
 public:
  WorkQueueMaker(const QueueMapper& mapper, Resources& resources, const Limits& limits)
      : mapper_(mapper), resources_(resources), limits_(limits) {}

  tl::expected<WorkQueue, Refusal> make_send(util::View<spec::connectx::wq> wq,
                                             std::span<const std::byte> pas);
  tl::expected<WorkQueue, Refusal> make_receive(util::View<spec::connectx::wq> wq,
                                                std::span<const std::byte> pas);

 private:
  tl::expected<WorkQueue, Refusal> make_queue(util::View<spec::connectx::wq> wq,
                                              std::span<const std::byte> pas,
                                              unsigned record_dword);

  QueueMapper mapper_;
  Resources& resources_;
  const Limits& limits_;
};

}  // namespace softhca::connectx
