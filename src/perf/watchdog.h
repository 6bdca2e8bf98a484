// Ends a loop that makes no progress.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>

#include "driver/host.h"
#include "perf/testbed.h"

namespace softhca::perf {

inline tl::unexpected<util::Error> device_gone() { return util::fail(driver::Host::kLost); }

class Watchdog {
 public:
  /// Enough for a hundred messages of 2^28 bytes at a gigabyte per second, twice over.
  static constexpr std::chrono::seconds kPatience{60};

  explicit Watchdog(Testbed& testbed) : testbed_(testbed) {}

  /// Call now and then. `progress`: any value that changes with each step of progress.
  util::Result<void> look(util::Time now, std::uint64_t progress) {
    if (testbed_.lost()) return device_gone();
    if (progress != progress_ || since_ == util::Time{}) {
      progress_ = progress;
      since_ = now;
    }
    if (now - since_ <= kPatience) return {};
    return util::fail(fmt::format("nothing has come for {} seconds", kPatience.count()));
  }

 private:
  Testbed& testbed_;
  util::Time since_{};
  std::uint64_t progress_ = 0;
};

}  // namespace softhca::perf
