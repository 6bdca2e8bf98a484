// The counters of one device name over all processes of a run. Each process is a host with a card
// of its own, but the counters are usually read by another program (cat, a monitor). So each
// process adds its device's counters to a file of the run, which outlives the process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "uverbs/device_counters.h"

namespace softhca::door {

class RunCounters {
 public:
  /// `directory`: of the run; `device`: "mlx5_0". If the file cannot be used, only this process is
  /// counted.
  RunCounters(const std::string& directory, std::string_view device);
  ~RunCounters();
  RunCounters(const RunCounters&) = delete;
  RunCounters& operator=(const RunCounters&) = delete;

  /// `now`: the counters of this process's device since its creation.
  void add(const uverbs::DeviceCounters& now);
  /// The sum over all processes, as of their last add(). Reads the file, not the mapping: a process
  /// of the run may truncate the file, and a reader has no fault handler (fault_guard.h).
  uverbs::DeviceCounters read() const;

 private:
  using Shared = std::array<std::atomic<std::uint64_t>, uverbs::kDeviceCounters>;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  const std::string path_;
  uverbs::DeviceCounters added_{};
  Shared own_{};
  Shared* shared_ = &own_;
};

}  // namespace softhca::door
