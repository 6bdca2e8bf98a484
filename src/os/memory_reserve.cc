#include "os/memory_reserve.h"

namespace softhca::os {

MemoryReserve& MemoryReserve::instance() {
  static MemoryReserve reserve;
  return reserve;
}

void MemoryReserve::refill() {
  if (block_ == nullptr) block_.reset(new (std::nothrow) std::byte[kSize]);
}

}  // namespace softhca::os
