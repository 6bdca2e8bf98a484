#include "vfio_user/turn_times.h"

#include <malloc.h>
#include <time.h>

#include <utility>

namespace softhca::vfio_user {

void TurnTimes::end_turn() {
  ++turns_;
  longest_work_ = std::max(longest_work_, std::exchange(work_, 0));
  if (!measure_) return;
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  const auto time = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  if (last_ != util::Duration{}) {
    const util::Duration turn = time - last_;
    longest_ = std::max(longest_, turn);
    if (turn > kLong) ++long_turns_;
  }
  last_ = time;
}

void TurnTimes::inspect(util::InspectNode& out) const {
  out.add("turns", turns_);
  out.add("longest_work", static_cast<std::uint64_t>(longest_work_));
  if (measure_) {
    out.add("longest_processor_ns", static_cast<std::uint64_t>(longest_.count()));
    out.add("turns_above_2_ms", long_turns_);
  }
  const auto heap = ::mallinfo2();
  out.add("heap_bytes", std::uint64_t{heap.uordblks} + heap.hblkhd);
}

}  // namespace softhca::vfio_user
