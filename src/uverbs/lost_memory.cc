// Memory that the program has taken away while the device was to use it (host-door contract 9.5).
// Hardware has pinned it; here it is gone, and what stood for it goes, too.
#include <rdma/ib_user_verbs.h>

#include "util/log.h"
#include "uverbs/context.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

namespace {

constexpr std::uint32_t kState = 1;  // of ib_qp_attr_mask
constexpr std::uint8_t kError = 6;   // of ib_qp_state

}  // namespace

/// Its work requests are flushed, and its peer hears nothing more.
void Context::break_qp(QueuePair& qp) {
  if (qp.condition().state == kError) return;
  if (qp.is_target()) {
    qp.destroy_target();
    qp.condition().state = kError;
    return;
  }
  QpAttributes wanted{};
  wanted.attr_mask = kState;
  wanted.qp_state = kError;
  (void)change_qp(qp, wanted);
  qp.handle_event(spec::event_type::LOCAL_ACCESS_VIOLATION_WQ_ERROR);
}

/// What the program has made in it by commands of its own is destroyed, as far as the device lets
/// go of it. The program still has its handles.
void Context::lose_umem(DevxMemory& umem) {
  util::log(util::LogLevel::kWarning,
            "{:#x} bytes at {:#x} are no memory any more, and are UMEM {}: what lies in it goes",
            umem.memory.size, umem.memory.begin, umem.id);
  objects_.for_each<DevxObject>([&](DevxObject& object) {
    const auto& place = object.place;
    if (place.memory != umem.id && place.record_memory != umem.id) return;
    object.stop_doorbells();
    (void)object.end();
  });
}

void Context::lose_memory(std::uint64_t page, bool was_write) {
  objects_.for_each<MemoryRegion>([&](MemoryRegion& region) {
    // Memory on demand need not be there, and is not reached in this way.
    if (region.key == 0 || region.is_on_demand() || !region.memory.touches(page)) return;
    util::log(util::LogLevel::kWarning,
              "{:#x} is no memory any more, and is registered with key {:#x} ({:#x} bytes at "
              "{:#x}): the key is taken away",
              page, region.key, region.memory.size, region.memory.begin);
    region.revoke();
    if (!was_write) return;
    // Whose work it was is not known; it had a key of this domain.
    objects_.for_each<QueuePair>([&](QueuePair& qp) {
      if (qp.pd.get() == region.pd.get()) break_qp(qp);
    });
  });
  objects_.for_each<DevxMemory>([&](DevxMemory& umem) {
    if (umem.memory.touches(page)) lose_umem(umem);
  });
  objects_.for_each<QueuePair>([&](QueuePair& qp) {
    const MemoryRange record{.begin = qp.record, .size = 8};
    if (!qp.queues.touches(page) && !qp.raw_send_queue.touches(page) && !record.touches(page)) {
      return;
    }
    device_.records().remove_send_queue(qp.qpn);
    break_qp(qp);
  });
  objects_.for_each<ReceiveQueue>([&](ReceiveQueue& wq) {
    const MemoryRange record{.begin = wq.record, .size = 8};
    if (!wq.memory.touches(page) && !record.touches(page)) return;
    (void)wq.queue.change(spec::rq_state::ERR);
    wq.handle_event(spec::event_type::LOCAL_WQ_CATASTROPHIC_ERROR);
  });
  objects_.for_each<CompletionQueue>([&](CompletionQueue& cq) {
    const MemoryRange record{.begin = cq.record, .size = 8};
    if (!cq.entries_memory.touches(page) && !record.touches(page)) return;
    device_.records().remove_completion_queue(cq.cqn);
    cq.handle_event(spec::event_type::CQ_ERROR);
  });
}

}  // namespace softhca::uverbs
