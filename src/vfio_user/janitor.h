// Takes away what a client leaves behind, in a thread of its own, because it may take any time:
// the last close of a file that a client made waits for a file system that the client runs, or for
// data that a socket is to linger for; a large mapping takes milliseconds to unmap.
#pragma once

#include <cstddef>
#include <memory>

#include "util/clock.h"
#include "vfio_user/unique_fd.h"

namespace softhca::vfio_user {

class Janitor {
 public:
  Janitor();
  /// Waits a while for what is left, and no longer.
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  /// Closes `fd`. Called in the loop's thread, as the others are.
  void close(UniqueFd fd);
  /// Unmaps [start, start + size), which nobody uses any more. Small ranges are gone at once.
  void unmap(std::byte* start, std::size_t size);

  /// Descriptors and mappings that are still to be taken away.
  std::size_t pending() const;
  /// True if none is before `until`.
  bool wait(util::Time until);

 private:
  struct Work;
  std::shared_ptr<Work> work_;
};

}  // namespace softhca::vfio_user
