// An event channel: a descriptor that is readable while events wait. The program fetches them with
// a command (kernel interface 8.1).
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::rdma_cm {

/// The values of rdma_cm_event_type in <rdma/rdma_cma.h>.
enum class EventType : std::uint32_t {
  kAddrResolved = 0,
  kAddrError = 1,
  kRouteResolved = 2,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kMulticastJoin = 12,
  kMulticastError = 13,
  kTimeWaitExit = 15,
  kUser = 18,
  kInternal = 19,
};

struct Event {
  EventType type() const { return static_cast<EventType>(content.event); }
  std::uint32_t counted_for = 0;  ///< identifier whose events_read counts it
  std::uint32_t membership = 0;   ///< multicast membership that the event is about; 0: none
  rdma_ucm_event_resp content{};
};

class Channel {
 public:
  static util::Result<std::unique_ptr<Channel>> create();

  /// The end that the program polls; can be taken once.
  os::UniqueFd take_reader() { return std::move(reader_); }
  std::uint64_t device() const { return device_; }
  std::uint64_t inode() const { return inode_; }
  /// Whether the program has closed it and all copies of it.
  bool closed() const;

  void push(const Event& event);
  /// Null: no event waits.
  const Event* front() const { return events_.empty() ? nullptr : &events_.front(); }
  std::optional<Event> pop();
  /// Makes the descriptor readable if and only if events wait. A program thread that blocks in
  /// read() consumes the byte.
  void settle();
  /// Passes the events for which `drop(event)` holds to `visit`, in order, and removes them.
  /// However many events wait, it makes two system calls.
  template <class Drop, class Visit>
  void remove_if(Drop&& drop, Visit&& visit) {
    std::deque<Event> kept, dropped;
    for (auto& event : events_) (drop(event) ? dropped : kept).push_back(std::move(event));
    events_ = std::move(kept);
    std::ranges::for_each(dropped, visit);
    settle();
  }

 private:
  Channel() = default;

  std::deque<Event> events_;
  os::UniqueFd reader_, writer_;
  os::UniqueFd own_reader_;  ///< its status flags are independent of the program's
  std::uint64_t device_ = 0, inode_ = 0;
};

}  // namespace softhca::rdma_cm
