// An interrupt sink that records.
#pragma once

#include <cstdint>
#include <vector>

#include "pcie/interrupt_mechanism.h"

namespace softhca::pcie {

class RaisedVectors final : public InterruptSink {
 public:
  void raise(std::uint16_t vector) override { raised.push_back(vector); }
  std::vector<std::uint16_t> raised;
};

}  // namespace softhca::pcie
