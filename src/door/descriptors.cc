#include "door/descriptors.h"

#include <sys/stat.h>

#include "door/kernel.h"
#include "uverbs/event_pipe.h"

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

Descriptors::Kind Descriptors::kind(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return {};
  if (S_ISREG(status.st_mode)) return {.device = device_of(status.st_dev, status.st_ino) != 0};
  if (!S_ISFIFO(status.st_mode)) return {};
  const auto record = uverbs::EventPipe::known().find(status.st_dev, status.st_ino);
  if (record) return {.record = *record};
  return {.channel = device_of_channel(status.st_dev, status.st_ino) != 0};
}

}  // namespace softhca::door
