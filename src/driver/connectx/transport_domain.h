// A transport domain (PRM 3.4): the queues of one user of the Ethernet side. Frames that they send
// are not looped back to them.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/connectx/hca.h"

namespace softhca::driver::connectx {

class TransportDomain {
 public:
  static util::Result<std::unique_ptr<TransportDomain>> create(Hca& hca);
  ~TransportDomain();
  TransportDomain(const TransportDomain&) = delete;
  TransportDomain& operator=(const TransportDomain&) = delete;

  Hca& hca() { return hca_; }
  std::uint32_t number() const { return number_; }
  /// DEALLOC_TRANSPORT_DOMAIN. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

 private:
  TransportDomain(Hca& hca, std::uint32_t number) : hca_(hca), number_(number) {}

  Hca& hca_;
  std::uint32_t number_;
  bool exists_ = true;
};

}  // namespace softhca::driver::connectx
