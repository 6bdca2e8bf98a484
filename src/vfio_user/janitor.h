// Takes away what a client leaves behind, in a thread of its own, because it may take any time:
// the last close of a file that a client made waits for a file system that the client runs, or for
// data that a socket is to linger for; a large mapping takes milliseconds to unmap, and so do
// thousands of small ones.
//
// What is still to be taken away counts in its client's share of the process, so that a client that
// leaves things behind faster than they go gets no others for them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "pcie/dma_space.h"
#include "util/clock.h"
#include "util/event_loop.h"
#include "vfio_user/memory_guard.h"
#include "vfio_user/unique_fd.h"

namespace softhca::vfio_user {

class Janitor {
 public:
  using Maps = std::vector<pcie::DmaSpace::Mapping>;

  /// `gone`, which outlives it, is raised for those who ask; null: nobody does.
  explicit Janitor(util::EventLoop::Notice* gone = nullptr);
  /// Waits a while for what is left, and no longer.
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // In the loop's thread, like the rest. They never fail: what cannot be handed over is done at
  // once.

  void close(UniqueFd fd) noexcept;
  void close(std::vector<UniqueFd> fds) noexcept;
  /// Unmaps those of `maps` that are guarded, for `owner`, and that nobody uses any more. A single
  /// small one is gone at once.
  void unmap(Maps maps, std::shared_ptr<MemoryOwner> owner) noexcept;
  /// The same without a thread, however long it takes.
  static void unmap_now(const Maps& maps);

  /// Raises `gone` when the job that is under way is done; at once if there is none.
  void tell_when_gone();

  /// Maps and descriptors that are still to be taken away.
  std::size_t pending_maps() const;
  std::size_t pending_descriptors() const;
  /// True if there are none before `until`.
  bool wait(util::Time until);

 private:
  struct Work;
  std::shared_ptr<Work> work_;
};

}  // namespace softhca::vfio_user
