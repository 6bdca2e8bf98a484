// The counters of one device name over all processes of a run: each process is a host with a card
// of its own, and a program that looks (cat, a monitor) is another process than the one that sends.
// Each adds what its device has counted to a file of the run, which stays when it ends.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "uverbs/device_counters.h"

namespace softhca::door {

class RunCounters {
 public:
  /// `directory`: of the run; `device`: "mlx5_0". If there can be no such file, it counts for this
  /// process alone.
  RunCounters(const std::string& directory, std::string_view device);
  ~RunCounters();
  RunCounters(const RunCounters&) = delete;
  RunCounters& operator=(const RunCounters&) = delete;

  /// `now`: what the device of this process has counted since it was made.
  void add(const uverbs::DeviceCounters& now);
  /// Of all processes, as far as they have added.
  uverbs::DeviceCounters read() const;

 private:
  using Shared = std::array<std::atomic<std::uint64_t>, uverbs::kDeviceCounters>;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  uverbs::DeviceCounters added_{};
  Shared own_{};
  Shared* shared_ = &own_;
};

}  // namespace softhca::door
