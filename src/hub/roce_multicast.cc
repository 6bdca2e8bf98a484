#include "hub/roce_multicast.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "hub/udp_address.h"
#include "os/kept_fd.h"
#include "os/unique_fd.h"
#include "util/log.h"
#include "util/result.h"
#include "wire/address_text.h"
#include "wire/group_mac.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

using os::UniqueFd;

/// IPV6_MULTICAST_ALL of <linux/in6.h>, which does not go with libc's headers.
constexpr int kMulticastAll6 = 29;

template <class T>
bool set(int fd, int level, int option, const T& value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

/// Only groups that this socket joins: by default, the kernel also gives it those of others.
bool join_ipv4(int fd, const wire::Gid& group, unsigned interface) {
  ip_mreqn member{};
  member.imr_multiaddr.s_addr = htonl(group.to_ipv4());
  member.imr_ifindex = static_cast<int>(interface);
  return set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0) && set(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, member);
}

bool join_ipv6(int fd, const wire::Gid& group, unsigned interface) {
  ipv6_mreq member{};
  std::memcpy(&member.ipv6mr_multiaddr, group.bytes.data(), group.bytes.size());
  member.ipv6mr_interface = interface;
  (void)set(fd, IPPROTO_IPV6, kMulticastAll6, 0);  // since Linux 4.20
  return set(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, member);
}

/// Call before bind(), which binds sockets of link-local groups to the interface: the kernel then
/// refuses a second time without a privilege. Before Linux 5.7 it refuses the first time, too.
bool bind_to(int fd, unsigned interface) {
  std::array<char, IF_NAMESIZE> name{};
  return ::if_indextoname(interface, name.data()) != nullptr &&
         ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(), name.size()) == 0;
}

}  // namespace

util::Result<std::unique_ptr<RoceSocket>> RoceMulticast::open_socket(const wire::Gid& group,
                                                                     unsigned interface) {
  const bool is_ipv4 = group.is_ipv4();
  UniqueFd socket(
      ::socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return util::fail_errno("no UDP socket");
  const int fd = socket.get();
  // IPv4 compares the interface of a membership when a packet comes, IPv6 does not.
  if (!bind_to(fd, interface) && !is_ipv4) {
    return util::fail_errno("its interface (before Linux 5.7, IPv6 groups need CAP_NET_RAW)");
  }
  auto name = UdpAddress::of(group, wire::kRoceUdpPort);
  if (!is_ipv4) name.ipv6.sin6_scope_id = interface;
  // The processes of a machine each have a socket of the group.
  const bool is_bound = set(fd, SOL_SOCKET, SO_REUSEADDR, 1) &&
                        (is_ipv4 || set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) &&
                        ::bind(fd, &name.any, name.size()) == 0;
  if (!is_bound) return util::fail_errno(fmt::format("UDP port {}", wire::kRoceUdpPort));
  const bool has_joined =
      is_ipv4 ? join_ipv4(fd, group, interface) : join_ipv6(fd, group, interface);
  if (!has_joined) return util::fail_errno("membership");
  return RoceSocket::adopt(std::move(socket), group);
}

bool RoceMulticast::is_member(const wire::Gid& group) const {
  return std::ranges::any_of(
      members_, [&](const Member& member) { return member.socket->address() == group; });
}

void RoceMulticast::set_groups(std::span<const wire::Gid> groups, unsigned interface,
                               fabric::Port& port) {
  if (interface == 0) groups = {};  // the kernel would choose one
  const bool has_moved = std::exchange(interface_, interface) != interface;
  const auto is_other = [&](const wire::Gid& group) {
    return !std::ranges::binary_search(groups, group);
  };
  leave_if(port, [&](const wire::Gid& group) { return has_moved || is_other(group); });
  std::erase_if(refused_, is_other);
  // A device has thousands of groups, and the kernel may refuse all of them.
  const auto next = std::ranges::upper_bound(groups, last_tried_) - groups.begin();
  std::size_t tries = 0;
  for (std::size_t i = 0; i != groups.size(); ++i) {
    const auto& group = groups[(static_cast<std::size_t>(next) + i) % groups.size()];
    if (is_full() && refused_.contains(group)) continue;
    if (is_member(group)) continue;
    if (!is_full() && tries++ == kGroupsMax) break;
    last_tried_ = group;
    open(group);
  }
}

void RoceMulticast::join(const wire::Gid& group) {
  if (interface_ != 0 && !is_member(group)) open(group);
}

void RoceMulticast::leave(const wire::Gid& group, fabric::Port& port) {
  leave_if(port, [&](const wire::Gid& member) { return member == group; });
  refused_.erase(group);
}

/// Leaves the groups for which `is_left` is true.
template <class IsLeft>
void RoceMulticast::leave_if(fabric::Port& port, IsLeft&& is_left) {
  const auto goes = [&](const Member& member) { return is_left(member.socket->address()); };
  if (std::ranges::none_of(members_, goes)) return;
  (void)port.settle();  // its queued frames refer to the sockets' memory
  for (const auto& member : members_) {
    // A forked child may have the socket, too, so closing it would not suffice.
    if (goes(member)) ::epoll_ctl(watcher_.get(), EPOLL_CTL_DEL, member.socket->fd(), nullptr);
  }
  std::erase_if(members_, goes);
}

/// A socket takes megabytes, which a program with a limit may not have.
void RoceMulticast::open(const wire::Gid& group) {
  if (is_full()) {
    return refuse(group, fmt::format("only {} groups get a UDP socket", kGroupsMax));
  }
  try {
    auto socket = open_(group, interface_);
    if (!socket) return refuse(group, socket.error().message);
    add(*std::move(socket));
  } catch (const std::bad_alloc&) {
    refuse(group, "no memory");
  }
}

void RoceMulticast::add(std::unique_ptr<RoceSocket> socket) {
  const auto& group = socket->address();
  auto reader = std::make_unique<wire::DatagramReader>(router_, wire::mac_of_group(group));
  if (!watch(socket->fd())) return refuse(group, util::fail_errno("epoll").value().message);
  socket->set_own(own_);
  refused_.erase(group);
  members_.push_back({.socket = std::move(socket), .reader = std::move(reader)});
}

bool RoceMulticast::watch(int fd) {
  if (!watcher_) {
    UniqueFd made(::epoll_create1(EPOLL_CLOEXEC));
    if (!made) return false;
    watcher_ = os::keep(std::move(made));
  }
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  return ::epoll_ctl(watcher_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

/// The result is valid until the next call.
std::span<const RoceMulticast::Member* const> RoceMulticast::find_readable() {
  if (members_.empty()) return {};
  std::array<epoll_event, kGroupsMax> events;
  const int count = ::epoll_wait(watcher_.get(), events.data(), kGroupsMax, 0);
  std::size_t found = 0;
  for (int i = 0; i < count; ++i) {
    const auto fd = events[static_cast<std::size_t>(i)].data.fd;
    const auto at = std::ranges::find_if(
        members_, [fd](const Member& member) { return member.socket->fd() == fd; });
    if (at != members_.end()) readable_[found++] = &*at;
  }
  return std::span(readable_).first(found);
}

/// Logs why a group has no socket, once. A program chooses how many groups it has.
void RoceMulticast::refuse(const wire::Gid& group, std::string_view reason) {
  if (!refused_.insert(group).second) return;
  std::uint64_t held_back = 0;
  if (!lines_.allow(clock_(), &held_back)) return;
  const auto others =
      held_back == 0 ? std::string() : fmt::format(" ({} lines like this not shown)", held_back);
  util::log(util::LogLevel::kWarning, "packets of other machines to group {} do not arrive: {}{}",
            text_of(group), reason, others);
}

void RoceMulticast::set_own(std::span<const wire::Gid> addresses) {
  own_.assign(addresses.begin(), addresses.end());
  for (auto& member : members_) member.socket->set_own(own_);
}

void RoceMulticast::leave_to_parent() {
  for (auto& member : members_) member.socket->leave_to_parent();
  watcher_.reset();
}

}  // namespace softhca::hub
