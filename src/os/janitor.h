// Releases what a client leaves behind, in threads of its own, because a release can take any time.
// The last close of a client's file may wait for a file system that the client runs, or for a
// lingering socket. Unmapping a large mapping, or thousands of small ones, takes milliseconds.
//
// Maps and eventfds have their own thread: their release always ends. The close of any other
// descriptor may never end, and then blocks only further closes of that kind.
//
// Everything not yet released counts towards its client's share of the process. So a client that
// leaves maps or descriptors behind faster than they are released gets no new ones.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "os/event_loop.h"
#include "os/memory_guard.h"
#include "os/unique_fd.h"
#include "util/clock.h"

namespace softhca::os {

class Janitor {
 public:
  /// Memory of a client. It begins at the address that was passed to MemoryGuard::add() as `used`.
  using Map = std::span<std::byte>;
  using Maps = std::vector<Map>;

  /// `gone`, which outlives the janitor, is raised on request; null: it is never requested.
  explicit Janitor(EventLoop::Notice* gone = nullptr);
  /// Waits for pending jobs, for a limited time.
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // Called in the loop's thread, like all methods. They never fail: if a job cannot be handed to
  // the thread, it is done immediately.

  /// Closes a descriptor of any kind.
  void close(UniqueFd fd) noexcept;
  /// Closes descriptors that EventSignal::is_eventfd() has verified.
  void close_eventfds(std::vector<UniqueFd> fds) noexcept;
  /// Unmaps those of `maps` that are guarded for `owner` and no longer used. A single small map is
  /// unmapped immediately.
  void unmap(Maps maps, std::shared_ptr<MemoryOwner> owner) noexcept;
  /// The same in the calling thread, however long it takes.
  static void unmap_now(std::span<const Map> maps);

  /// Raises `gone` when a current job is done; immediately if there is none.
  void notify_when_gone();

  /// Maps and descriptors not yet released.
  std::size_t pending_maps() const;
  std::size_t pending_descriptors() const;
  /// Waits until none is pending. False if some still are at `until`.
  bool wait(util::Time until);

 private:
  struct Queue;
  std::shared_ptr<Queue> known_;    ///< maps and eventfds
  std::shared_ptr<Queue> foreign_;  ///< descriptors of any kind
};

}  // namespace softhca::os
