// The turns of QPs: which QPs have pending work, and how much of it a turn does. Internal.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rdma/engine.h"
#include "util/clock.h"
#include "util/work_budget.h"

namespace softhca::rdma {

/// Serves ready QPs in turn, expires timers, and wakes QPs whose frames are released. The functions
/// that take the engine run for every turn of a QP.
class QpScheduler {
 public:
  explicit QpScheduler(Engine& engine) : engine_(engine) {}

  /// See Transport.
  util::Time run(util::Time now, util::WorkBudget& work) {
    auto& engine = engine_;
    engine.now = now;
    const bool idle = engine.ready.empty() && engine.unreleased.empty() && !engine.timers.due(now);
    return idle ? engine.timers.next() : run_due(work);
  }
  /// See Transport. The QP stays in its lists: run() finds nothing left to do.
  void run_only(QueuePair& qp, util::WorkBudget& work) {
    const auto used = serve_plain(engine_, qp, Engine::kQuantum);
    work.charge(std::int64_t{std::max(1u, used)} * Engine::kStepWork + engine_.keys.work().drain());
  }

 private:
  util::Time run_due(util::WorkBudget& work);
  void take_released();
  std::int64_t expire_timers(std::int64_t left);
  void expire(QueuePair& qp);

  static unsigned serve(Engine& engine, QueuePair& qp, unsigned quota);
  static unsigned serve_plain(Engine& engine, QueuePair& qp, unsigned quota);
  static unsigned serve_slow(Engine& engine, QueuePair& qp, unsigned quota);
  static unsigned serve_in_any_state(Engine& engine, QueuePair& qp, unsigned quota);
  static void report(Engine& engine, QueuePair& qp);

  Engine& engine_;
};

}  // namespace softhca::rdma
