// The device's health, as the initialization segment reports it (PRM Table 8, health_syndrome).
#pragma once

#include <cstdint>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

class Health {
 public:
  using Syndrome = spec::connectx::health_syndrome;

  /// Keeps the first syndrome until a driver starts again. The first one is the cause, and later
  /// ones are its consequences.
  void report(Syndrome syndrome) {
    if (syndrome_ == Syndrome::NONE) syndrome_ = syndrome;
  }
  void clear() { syndrome_ = Syndrome::NONE; }
  Syndrome syndrome() const { return syndrome_; }

 private:
  Syndrome syndrome_ = Syndrome::NONE;
};

}  // namespace softhca::connectx
