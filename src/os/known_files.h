// The library's files in this process, identified by fstat(). A lookup takes no lock and is safe in
// a signal handler, so that calls unrelated to RDMA never wait.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>

namespace softhca::os {

class KnownFiles {
 public:
  constexpr KnownFiles() = default;
  KnownFiles(const KnownFiles&) = delete;
  KnownFiles& operator=(const KnownFiles&) = delete;

  // By one thread at a time.
  void add(dev_t device, ino_t inode, unsigned number);
  void remove(dev_t device, ino_t inode);
  /// Removes the files for which `is_gone(device, inode)` is true.
  template <class IsGone>
  void remove_if(IsGone&& is_gone) {
    for (auto* place = first_.load(); place != nullptr; place = place->next) {
      const auto inode = place->inode.load();
      if (inode != 0 && is_gone(place->device.load(), inode)) place->inode = 0;
    }
  }

  /// The number given to add().
  std::optional<unsigned> find(dev_t device, ino_t inode) const;

 private:
  /// Reused, but never destroyed, because a reader may be using it.
  struct Place {
    std::atomic<ino_t> inode = 0;  ///< 0: free
    std::atomic<dev_t> device = 0;
    std::atomic<unsigned> number = 0;
    Place* next = nullptr;
  };
  std::atomic<Place*> first_ = nullptr;
};

}  // namespace softhca::os
