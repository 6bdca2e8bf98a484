#include "jingzhao/objects.h"

namespace softhca::jingzhao {

namespace {

/// Work (util::WorkBudget) of destroying a QP, a CQ, a number of a table without either, and the
/// rest.
constexpr std::int64_t kDropQpWork = 1'000;
constexpr std::int64_t kDropCqWork = 100;
constexpr std::int64_t kDropNumberWork = 2;
constexpr std::int64_t kDropRestWork = 20'000;

/// Calls `visit` for the ICM caches, until it returns false. True if it never does.
template <class Visit>
bool for_each_cache(Objects& objects, Visit&& visit) {
  return visit(objects.queue_pairs->contexts()) && visit(objects.completion_queues->contexts()) &&
         visit(objects.event_queues->contexts()) && visit(objects.memory_keys->mpts()) &&
         visit(objects.memory_keys->mtts());
}

}  // namespace

Objects::Objects(const Parts& parts, const Tables& tables)
    : numbering(parts.rules, tables.log_qps, tables.log_cqs) {
  const auto cache = parts.cache;
  memory_keys = std::make_unique<MemoryKeys>(
      MemoryKeys::Parts{.dma = parts.dma,
                        .icm = parts.memory,
                        .notes = parts.notes,
                        .unloaded = parts.unloaded,
                        .mpt_base = tables.mpt_base,
                        .mtt_base = tables.mtt_base,
                        .log_mpts = tables.log_mpts,
                        .cache = cache,
                        .all_memory_is_physical = parts.rules.all_memory_is_physical});
  auto& keys = memory_keys->table();
  keys.set_trace(parts.trace);
  event_queues = std::make_unique<EventQueues>(EventQueues::Parts{.icm = parts.contexts,
                                                                  .keys = keys,
                                                                  .interrupts = parts.interrupts,
                                                                  .faults = parts.faults,
                                                                  .notes = parts.notes,
                                                                  .base = tables.eqc_base,
                                                                  .log_count = tables.log_eqs,
                                                                  .cache = cache});
  completion_queues =
      std::make_unique<CompletionQueues>(CompletionQueues::Parts{.icm = parts.contexts,
                                                                 .keys = keys,
                                                                 .event_queues = *event_queues,
                                                                 .faults = parts.faults,
                                                                 .notes = parts.notes,
                                                                 .base = tables.cqc_base,
                                                                 .log_count = tables.log_cqs,
                                                                 .cache = cache});
  queue_pairs =
      std::make_unique<QueuePairs>(QueuePairs::Parts{.icm = parts.contexts,
                                                     .memory_keys = *memory_keys,
                                                     .keys = keys,
                                                     .event_queues = *event_queues,
                                                     .completion_queues = *completion_queues,
                                                     .faults = parts.faults,
                                                     .port = parts.port,
                                                     .infiniband = parts.infiniband,
                                                     .notes = parts.notes,
                                                     .base = tables.qpc_base,
                                                     .log_count = tables.log_qps,
                                                     .cache = cache,
                                                     .rules = parts.rules,
                                                     .numbering = numbering});
}

bool Objects::make_caches(util::WorkBudget& work) {
  return for_each_cache(*this, [&](IcmCache& cache) { return cache.grow(work); });
}

bool Objects::free_caches(util::WorkBudget& work) {
  return for_each_cache(*this, [&](IcmCache& cache) { return cache.shrink(work); });
}

/// True if only the destructors are left to call, whose cost does not depend on the number of
/// objects.
bool Remains::dismantle(util::WorkBudget& work) {
  auto& keys = objects_->memory_keys->table();
  for (auto& qps = *objects_->queue_pairs; qps.end() != 0;) {
    if (work.spent()) return false;
    work.charge(qps.drop_last() ? kDropQpWork + keys.work().drain() : kDropNumberWork);
  }
  for (auto& cqs = *objects_->completion_queues; cqs.end() != 0;) {
    if (work.spent()) return false;
    work.charge(cqs.drop_last() ? kDropCqWork : kDropNumberWork);
  }
  return keys.dismantle(work) && objects_->free_caches(work);
}

void Remains::clear(util::WorkBudget& work) {
  const bool frees_all = regions_.free(work);
  if (objects_ != nullptr && dismantle(work)) {
    work.charge(kDropRestWork);
    objects_.reset();
  }
  any_ = !frees_all || objects_ != nullptr;
}

bool Remains::may_run(Opcode op) const {
  return regions_.empty() && (objects_ == nullptr || op != Opcode::INIT_HCA);
}

}  // namespace softhca::jingzhao
