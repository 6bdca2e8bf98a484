// What the initialization segment says of the device's health (PRM Table 8, health_syndrome).
#pragma once

#include <cstdint>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

class Health {
 public:
  using Syndrome = spec::connectx::health_syndrome;

  /// The first thing that went wrong stays until a driver begins anew: it is the cause, what
  /// follows are consequences.
  void report(Syndrome syndrome) {
    if (syndrome_ == Syndrome::NONE) syndrome_ = syndrome;
  }
  void clear() { syndrome_ = Syndrome::NONE; }
  Syndrome syndrome() const { return syndrome_; }

 private:
  Syndrome syndrome_ = Syndrome::NONE;
};

}  // namespace softhca::connectx
