#include "door/process/descriptors.h"

namespace softhca::door {

void Descriptors::note(int fd) {
  const auto at = static_cast<unsigned>(fd);
  if (at < kMax) noted_[at].store(true, std::memory_order_relaxed);
}

void Descriptors::forget(int fd) {
  const auto at = static_cast<unsigned>(fd);
  if (at < kMax) noted_[at].store(false, std::memory_order_relaxed);
}

bool Descriptors::forget_all(unsigned first, unsigned last) {
  bool any = false;
  for (auto at = first; at < kMax && at <= last; ++at) {
    any = noted_[at].load(std::memory_order_relaxed) || any;
    noted_[at].store(false, std::memory_order_relaxed);
  }
  return any;
}

}  // namespace softhca::door
