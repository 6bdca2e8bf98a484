// Ends a loop that would wait in vain.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>

#include "cli/perf/station.h"

namespace softhca::cli::perf {

inline tl::unexpected<util::Error> device_gone() { return util::fail("the device is gone"); }

class Vigil {
 public:
  /// A hundred messages of 2^28 bytes, at a gigabyte a second and twice that.
  static constexpr std::chrono::seconds kPatience{60};

  explicit Vigil(Station& station) : station_(station) {}

  /// Now and then. `seen`: another number each time that something has come.
  util::Result<void> look(util::Time now, std::uint64_t seen) {
    if (station_.lost()) return device_gone();
    if (seen != seen_ || since_ == util::Time{}) {
      seen_ = seen;
      since_ = now;
    }
    if (now - since_ <= kPatience) return {};
    return util::fail(fmt::format("nothing has come for {} seconds", kPatience.count()));
  }

 private:
  Station& station_;
  util::Time since_{};
  std::uint64_t seen_ = 0;
};

}  // namespace softhca::cli::perf
