// A program's descriptor of its device: a memfd. So mmap(), dup() and the like are the kernel's
// own, and doorbell pages are pages of the file. Its inode identifies the context (kernel
// interface 9.1).
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::door {

class DeviceFile {
 public:
  /// `fd`: the program's descriptor; on failure -errno.
  static util::Result<DeviceFile> create(int& fd);

  dev_t device() const { return status_.st_dev; }
  ino_t inode() const { return status_.st_ino; }
  /// Writes bytes that the program sees where it maps the file.
  bool store(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// Whether the program has closed it and all copies of it.
  bool closed() const;

 private:
  DeviceFile() = default;

  os::UniqueFd own_;
  struct stat status_{};
};

}  // namespace softhca::door
