// A protection domain (PRM 6.1): memory keys and queue pairs work together if they share one.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/connectx/hca.h"

namespace softhca::driver::connectx {

class ProtectionDomain {
 public:
  static util::Result<std::unique_ptr<ProtectionDomain>> create(Hca& hca);
  ~ProtectionDomain();
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;

  Hca& hca() { return hca_; }
  std::uint32_t pd() const { return pd_; }
  /// DEALLOC_PD. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

 private:
  ProtectionDomain(Hca& hca, std::uint32_t pd) : hca_(hca), pd_(pd) {}

  Hca& hca_;
  std::uint32_t pd_;
  bool exists_ = true;
};

}  // namespace softhca::driver::connectx
