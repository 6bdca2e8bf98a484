// INIT_HCA makes the objects of an HCA (JingZhao 3.2.1.3).
#include <cstdint>
#include <memory>
#include <utility>

#include "jingzhao/device.h"

namespace softhca::jingzhao {

namespace {

/// Work (util::WorkBudget) of making the tables of objects and all else but the ICM caches.
constexpr std::int64_t work_of(const Tables& tables) {
  constexpr std::int64_t kMakeWork = 50'000, kPointerWork = 2;
  const auto pointers = (std::int64_t{1} << tables.log_qps) + (std::int64_t{1} << tables.log_cqs);
  return kMakeWork + pointers * kPointerWork;
}

}  // namespace

void Device::init(const Tables& tables) {
  const auto cache = options_.icm_cache;
  work().charge(work_of(tables));
  auto making = std::make_unique<Objects>();
  auto& made = *making;
  made.memory_keys = std::make_unique<MemoryKeys>(
      MemoryKeys::Parts{.dma = dma(),
                        .icm = memory_,
                        .notes = notes_,
                        .unloaded = remains_.regions(),
                        .mpt_base = tables.mpt_base,
                        .mtt_base = tables.mtt_base,
                        .log_mpts = tables.log_mpts,
                        .cache = cache,
                        .all_memory_is_physical = rules_.all_memory_is_physical});
  auto& keys = made.memory_keys->table();
  keys.set_trace(trace());
  made.event_queues = std::make_unique<EventQueues>(EventQueues::Parts{.icm = contexts_,
                                                                       .keys = keys,
                                                                       .interrupts = interrupts(),
                                                                       .notes = notes_,
                                                                       .base = tables.eqc_base,
                                                                       .log_count = tables.log_eqs,
                                                                       .cache = cache});
  made.completion_queues =
      std::make_unique<CompletionQueues>(CompletionQueues::Parts{.icm = contexts_,
                                                                 .keys = keys,
                                                                 .event_queues = *made.event_queues,
                                                                 .notes = notes_,
                                                                 .base = tables.cqc_base,
                                                                 .log_count = tables.log_cqs,
                                                                 .cache = cache});
  made.queue_pairs =
      std::make_unique<QueuePairs>(QueuePairs::Parts{.icm = contexts_,
                                                     .memory_keys = *made.memory_keys,
                                                     .keys = keys,
                                                     .event_queues = *made.event_queues,
                                                     .completion_queues = *made.completion_queues,
                                                     .port = *port_,
                                                     .infiniband = infiniband_,
                                                     .notes = notes_,
                                                     .base = tables.qpc_base,
                                                     .log_count = tables.log_qps,
                                                     .cache = cache});
  making_ = std::move(making);
}

void Device::go_on_with_init(util::WorkBudget& work) {
  if (!making_->make_caches(work)) return;
  objects_ = std::move(making_);
  receiving_ = objects_->memory_keys.get();
  was_up_ = port_->link_up();
  objects_->queue_pairs->take_link_attributes();
  end_command(Status::OK);
}

}  // namespace softhca::jingzhao
