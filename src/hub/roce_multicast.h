// The multicast groups of a process on other machines: a UDP socket for each, bound to the group's
// address and RoCEv2's port, which is a member of the group on the process's interface. The kernel
// gives each process on the group a copy. This needs neither the hub nor a privilege.
//
// Programs of the own network get the process's packets by the hub, so the process sends to groups
// without IP_MULTICAST_LOOP, and drops what a switch returns.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/port.h"
#include "hub/roce_socket.h"
#include "os/unique_fd.h"
#include "util/log.h"
#include "util/result.h"
#include "util/time_source.h"
#include "wire/gid.h"
#include "wire/mac_address.h"
#include "wire/roce_datagram.h"

namespace softhca::hub {

class RoceMulticast {
 public:
  /// Most groups that get a socket.
  static constexpr std::size_t kGroupsMax = 32;

  /// A group that the process is a member of.
  struct Member {
    std::unique_ptr<RoceSocket> socket;
    std::unique_ptr<wire::DatagramReader> reader;
  };

  /// Opens the socket of a group, which is a member on the interface with this index. May throw
  /// std::bad_alloc.
  using OpenSocket = std::function<util::Result<std::unique_ptr<RoceSocket>>(const wire::Gid& group,
                                                                             unsigned interface)>;
  static util::Result<std::unique_ptr<RoceSocket>> open_socket(const wire::Gid& group,
                                                               unsigned interface);

  /// `router`: the source of received packets. `clock`: of the log.
  RoceMulticast(const wire::MacAddress& router, util::TimeSource clock,
                OpenSocket open = open_socket)
      : router_(router), clock_(std::move(clock)), open_(std::move(open)) {
    members_.reserve(kGroupsMax);
  }

  /// Joins `groups` on the interface with this index, and leaves all others. Logs each group that
  /// it could not join once, also for lack of memory, but few lines at a time. Opens at most
  /// kGroupsMax sockets; the next call tries the groups that follow. `interface`: 0: there is none
  /// now, and so no group. `port`: that of receive(). @pre `groups` is sorted
  void set_groups(std::span<const wire::Gid> groups, unsigned interface, fabric::Port& port);
  /// Joins another group on the same interface.
  void join(const wire::Gid& group);
  /// Leaves a group, and allocates nothing: destructors call it.
  void leave(const wire::Gid& group, fabric::Port& port);
  /// Packets of these addresses are dropped: they are the process's own.
  void set_own(std::span<const wire::Gid> addresses);
  const std::vector<Member>& members() const { return members_; }
  /// Readable when packets have come to any group. -1: no group was joined yet.
  int fd() const { return watcher_.get(); }
  /// Closes the sockets in a forked child.
  void leave_to_parent();

  /// As RoceSocket::receive(), for each group whose socket is readable. One call of the kernel
  /// finds these. A packet waits for one call: a socket stays readable until it has none left.
  template <class OnSource>
  std::size_t receive(fabric::Port& port, std::size_t frames, OnSource&& on_source) {
    std::size_t count = 0;
    for (const auto* const member : find_readable()) {
      count += member->socket->receive(port, *member->reader, frames, on_source);
    }
    return count;
  }

 private:
  bool is_member(const wire::Gid& group) const;
  bool is_full() const { return members_.size() == kGroupsMax; }
  void open(const wire::Gid& group);
  void add(std::unique_ptr<RoceSocket> socket);
  void refuse(const wire::Gid& group, std::string_view reason);
  bool watch(int fd);
  std::span<const Member* const> find_readable();
  template <class IsLeft>
  void leave_if(fabric::Port& port, IsLeft&& is_left);

  const wire::MacAddress router_;
  const util::TimeSource clock_;
  const OpenSocket open_;
  unsigned interface_ = 0;
  std::vector<wire::Gid> own_;
  os::UniqueFd watcher_;  ///< epoll(7), of the sockets of members_; none: no group was joined yet
  std::vector<Member> members_;
  std::array<const Member*, kGroupsMax> readable_{};
  std::set<wire::Gid> refused_;  ///< groups without a socket
  wire::Gid last_tried_;         ///< the last group of set_groups() for which open() was called
  util::RateLimiter lines_{4, std::chrono::seconds(10)};  ///< of the log
};

}  // namespace softhca::hub
