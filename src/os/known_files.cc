#include "os/known_files.h"

namespace softhca::os {

void KnownFiles::add(dev_t device, ino_t inode, unsigned number) {
  auto* place = first_.load();
  while (place != nullptr && place->inode.load() != 0) place = place->next;
  if (place == nullptr) {
    place = new Place;
    place->next = first_.load();
    first_ = place;
  }
  place->device = device;
  place->number = number;
  place->inode = inode;
}

void KnownFiles::remove(dev_t device, ino_t inode) {
  remove_if([&](dev_t its, ino_t one) { return its == device && one == inode; });
}

std::optional<unsigned> KnownFiles::find(dev_t device, ino_t inode) const {
  for (const auto* place = first_.load(); place != nullptr; place = place->next) {
    if (place->inode.load() != inode || place->device.load() != device) continue;
    const auto number = place->number.load();
    // Another file may have taken the place meanwhile.
    if (place->inode.load() == inode) return number;
  }
  return std::nullopt;
}

}  // namespace softhca::os
