#include "jingzhao/objects.h"

namespace softhca::jingzhao {

namespace {

/// Work (util::WorkBudget) of destroying a QP, a CQ, a number of a table without either, and the
/// rest besides the ICM caches.
constexpr std::int64_t kDropQpWork = 1'000;
constexpr std::int64_t kDropCqWork = 100;
constexpr std::int64_t kDropNumberWork = 2;
constexpr std::int64_t kDropRestWork = 20'000;

}  // namespace

/// True if only the destructors are left to call, whose cost does not depend on the number of
/// objects.
bool Remains::dismantle(util::WorkBudget& work) {
  auto& keys = objects_->memory_keys->table();
  for (auto& qps = *objects_->queue_pairs; qps.end() != 0;) {
    if (work.spent()) return false;
    work.charge(qps.drop_last() ? kDropQpWork + keys.take_work() : kDropNumberWork);
  }
  for (auto& cqs = *objects_->completion_queues; cqs.end() != 0;) {
    if (work.spent()) return false;
    work.charge(cqs.drop_last() ? kDropCqWork : kDropNumberWork);
  }
  return keys.dismantle(work);
}

void Remains::clear(util::WorkBudget& work) {
  const bool frees_all = regions_.free(work);
  if (objects_ != nullptr && dismantle(work)) {
    const auto cache = static_cast<std::int64_t>(objects_->queue_pairs->contexts().capacity());
    work.charge(kDropRestWork + cache * kCacheEntryWork);
    objects_.reset();
  }
  any_ = !frees_all || objects_ != nullptr;
}

bool Remains::may_run(Opcode op) const {
  return regions_.empty() && (objects_ == nullptr || op != Opcode::INIT_HCA);
}

}  // namespace softhca::jingzhao
