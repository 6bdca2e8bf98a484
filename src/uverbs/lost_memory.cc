#include "uverbs/lost_memory.h"

#include "util/log.h"
#include "uverbs/devx_object.h"
#include "uverbs/dynamic_targets.h"
#include "uverbs/objects.h"
#include "uverbs/qp_attributes.h"
#include "uverbs/qp_states.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

namespace {

/// Puts a QP into the error state: its work requests are flushed, and its peer gets no more
/// answers.
void break_qp(QueuePair& qp) {
  if (qp.condition().state == kQpError) return;
  if (qp.is_target()) {
    destroy_target(qp);
    qp.condition().state = kQpError;
    return;
  }
  QpAttributes wanted{};
  wanted.attr_mask = kQpState;
  wanted.qp_state = kQpError;
  (void)change_qp(qp, wanted);
  qp.handle_event(spec::event_type::LOCAL_ACCESS_VIOLATION_WQ_ERROR);
}

/// Destroys the DevX objects that lie in a UMEM, as far as the device allows. The program keeps its
/// handles.
void lose_umem(Objects& objects, DevxMemory& umem) {
  util::log(util::LogLevel::kWarning,
            "the program has unmapped memory of UMEM {} ({:#x} bytes at {:#x}): the objects in it "
            "are destroyed",
            umem.id, umem.memory.size, umem.memory.begin);
  objects.for_each<DevxObject>([&](DevxObject& object) {
    const auto& place = object.place;
    if (place.memory != umem.id && place.record_memory != umem.id) return;
    object.stop_doorbells();
    (void)object.end();
  });
}

/// Whether `queue` loses its memory now. Each queue does so once: a page may be lost again and
/// again, since the device continues to use it.
template <class Queue>
bool is_lost(Queue& queue, const MemoryRange& memory, std::uint64_t page) {
  const MemoryRange record{.begin = queue.record, .size = 8};
  if (queue.lost || (!memory.touches(page) && !record.touches(page))) return false;
  queue.lost = true;
  return true;
}

void lose_queues(Objects& objects, std::uint64_t page) {
  objects.for_each<QueuePair>([&](QueuePair& qp) {
    const MemoryRange record{.begin = qp.queues.record, .size = 8};
    if (!qp.queues.range.touches(page) && !qp.queues.send_range.touches(page) &&
        !record.touches(page)) {
      return;
    }
    qp.device.records().remove_send_queue(qp.qpn);
    break_qp(qp);
  });
  objects.for_each<SharedQueue>([&](SharedQueue& srq) {
    if (!is_lost(srq, srq.queue, page)) return;
    objects.for_each<QueuePair>([&](QueuePair& qp) {
      if (qp.srq.get() == &srq) break_qp(qp);
    });
    srq.handle_event(spec::event_type::LOCAL_SRQ_CATASTROPHIC_ERROR);
  });
  objects.for_each<ReceiveQueue>([&](ReceiveQueue& wq) {
    if (!is_lost(wq, wq.memory, page)) return;
    (void)wq.queue.change(spec::rq_state::ERR);
    wq.handle_event(spec::event_type::LOCAL_WQ_CATASTROPHIC_ERROR);
  });
  objects.for_each<CompletionQueue>([&](CompletionQueue& cq) {
    if (!is_lost(cq, cq.entries_memory, page)) return;
    cq.device.records().remove_completion_queue(cq.cqn);
    cq.handle_event(spec::event_type::CQ_ERROR);
  });
}

}  // namespace

void lose_memory(Objects& objects, std::uint64_t page, bool was_write) {
  objects.for_each<MemoryRegion>([&](MemoryRegion& region) {
    // On-demand memory may be absent; the device reaches it by kernel copies instead.
    if (region.key == 0 || region.is_on_demand() || !region.memory.touches(page)) return;
    util::log(util::LogLevel::kWarning,
              "the program has unmapped {:#x}, which is registered with key {:#x} ({:#x} bytes at "
              "{:#x}): the key is revoked",
              page, region.key, region.memory.size, region.memory.begin);
    region.revoke();
    if (!was_write) return;
    // The work request is unknown, but its key had this protection domain.
    objects.for_each<QueuePair>([&](QueuePair& qp) {
      if (qp.pd.get() == region.pd.get()) break_qp(qp);
    });
  });
  objects.for_each<DevxMemory>([&](DevxMemory& umem) {
    if (umem.memory.touches(page)) lose_umem(objects, umem);
  });
  lose_queues(objects, page);
}

}  // namespace softhca::uverbs
