// A turn of a device as the server's loop runs it, with a bound on its work.
#pragma once

#include "oracle.h"
#include "pcie/function.h"

namespace softhca::fuzz {

/// How far the last piece of work in a turn may exceed the allowance. The largest pieces are a WQE
/// with its packets, a frame through steering with its copies, and a command with an input or
/// output of half a MiB.
inline constexpr std::int64_t kPieceMax = 300'000;

/// Checks the work that a turn has counted.
inline void check_work(std::int64_t done, std::int64_t allowed) {
  costs.work = std::max(costs.work, done);
  check(done <= allowed + kPieceMax);
}

inline util::Time run_turn(pcie::Function& device, util::Time now) {
  const auto before = device.work_done();
  const Turn turn;
  const auto next = device.run(now);
  check_work(device.work_done() - before, pcie::Function::kRunWork);
  return next;
}

}  // namespace softhca::fuzz
