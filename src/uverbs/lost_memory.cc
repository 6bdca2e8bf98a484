#include "uverbs/lost_memory.h"

#include "util/log.h"
#include "uverbs/devx_object.h"
#include "uverbs/queue_pair.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

namespace {

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
    if (!qp.lies_in(page)) return;
    qp.device.records().remove_send_queue(qp.qpn);
    qp.fail();
  });
  objects.for_each<SharedReceiveQueue>([&](SharedReceiveQueue& srq) {
    if (!is_lost(srq, srq.queue, page)) return;
    objects.for_each<QueuePair>([&](QueuePair& qp) {
      if (qp.srq.get() == &srq) qp.fail();
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
      if (qp.pd.get() == region.pd.get()) qp.fail();
    });
  });
  objects.for_each<DevxMemory>([&](DevxMemory& umem) {
    if (umem.memory.touches(page)) lose_umem(objects, umem);
  });
  lose_queues(objects, page);
}

}  // namespace softhca::uverbs
