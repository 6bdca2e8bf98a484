// The device's health, as the initialization segment reports it (PRM Table 8, health_syndrome).
#pragma once

#include <cstdint>
#include <optional>

#include "spec/connectx/opcodes.h"
#include "util/clock.h"

namespace softhca::connectx {

class Health {
 public:
  using Syndrome = spec::connectx::health_syndrome;

  /// Keeps the first syndrome until a driver starts again. The first one is the cause, and later
  /// ones are its consequences.
  void report(Syndrome syndrome) {
    if (syndrome_ == Syndrome::NONE) syndrome_ = syndrome;
  }
  /// The firmware has stopped: the counter stands still, and recovery is asked for.
  void report_fatal(Syndrome syndrome, util::Time now) {
    syndrome_ = syndrome;
    stopped_at_ = now;
  }
  void clear() {
    syndrome_ = Syndrome::NONE;
    stopped_at_.reset();
  }
  Syndrome syndrome() const { return syndrome_; }
  /// Time of a fatal error. Nothing: there is none.
  std::optional<util::Time> stopped_at() const { return stopped_at_; }

 private:
  Syndrome syndrome_ = Syndrome::NONE;
  std::optional<util::Time> stopped_at_;
};

}  // namespace softhca::connectx
