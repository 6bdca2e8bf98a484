// The multicast groups of a process on other machines: a UDP socket for each, bound to the group's
// address and RoCEv2's port, which is a member of the group on the process's interface. The kernel
// gives each process on the group a copy. This needs neither the hub nor a privilege.
//
// Programs of the own network get the process's packets by the hub, so the process sends to groups
// without IP_MULTICAST_LOOP, and drops what a switch returns.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "fabric/port.h"
#include "hub/roce_socket.h"
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

  /// `router`: the source of received packets.
  explicit RoceMulticast(const wire::MacAddress& router) : router_(router) {}

  /// Joins `groups` on the interface with this index, and leaves all others. Logs each group that
  /// it could not join once. `interface`: 0: there is none now, and so no group. `port`: that of
  /// receive().
  void set_groups(std::span<const wire::Gid> groups, unsigned interface, fabric::Port& port);
  /// Packets of these addresses are dropped: they are the process's own.
  void set_own(std::span<const wire::Gid> addresses);
  const std::vector<Member>& members() const { return members_; }
  /// Closes the sockets in a forked child.
  void leave_to_parent();

  /// As RoceSocket::receive(), for each group.
  template <class Heard>
  std::size_t receive(fabric::Port& port, std::size_t frames, Heard&& heard) {
    std::size_t count = 0;
    for (const auto& member : members_) {
      count += member.socket->receive(port, *member.reader, frames, heard);
    }
    return count;
  }

 private:
  bool is_member(const wire::Gid& group) const;
  void join(const wire::Gid& group);

  const wire::MacAddress router_;
  unsigned interface_ = 0;
  std::vector<wire::Gid> own_;
  std::vector<Member> members_;
  std::vector<wire::Gid> refused_;  ///< groups without a socket
};

}  // namespace softhca::hub
