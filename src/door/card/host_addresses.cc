#include "door/card/host_addresses.h"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "os/kept_fd.h"

namespace softhca::door {
namespace {

std::optional<driver::Gid> gid_of(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET) {
    constexpr std::uint8_t kLoopback = 127;
    std::array<std::uint8_t, 4> bytes;
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr,
                bytes.size());
    if (bytes[0] == kLoopback) return std::nullopt;
    return driver::Gid::from_ipv4(bytes[0], bytes[1], bytes[2], bytes[3]);
  }
  if (address->sa_family != AF_INET6) return std::nullopt;
  driver::Gid gid;
  const auto& from = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  std::memcpy(gid.bytes.data(), &from, gid.bytes.size());
  if (gid.is_link_local() || IN6_IS_ADDR_LOOPBACK(&from)) return std::nullopt;
  return gid;
}

}  // namespace

util::Result<HostAddresses> HostAddresses::follow(std::string interface) {
  os::UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!socket) return util::fail_errno("rtnetlink");
  sockaddr_nl groups{};
  groups.nl_family = AF_NETLINK;
  groups.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_LINK;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&groups), sizeof groups) != 0) {
    return util::fail_errno("rtnetlink: bind");
  }
  return HostAddresses(std::move(interface), os::keep(std::move(socket)));
}

unsigned HostAddresses::index() const { return ::if_nametoindex(interface_.c_str()); }

/// Ignores the messages' content, since read() reads everything again. So a lost message (ENOBUFS)
/// counts like a received one.
bool HostAddresses::changed() {
  std::array<char, 8192> messages;
  bool any = false;
  while (::recv(socket_.get(), messages.data(), messages.size(), MSG_DONTWAIT) > 0 ||
         errno == ENOBUFS || errno == EINTR) {
    any = true;
    errno = 0;
  }
  return any;
}

std::vector<driver::Gid> HostAddresses::read() const {
  std::vector<driver::Gid> all, ipv6;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, ::freeifaddrs);
  for (const auto* at = list; at != nullptr; at = at->ifa_next) {
    if (interface_ != at->ifa_name) continue;
    const auto gid = gid_of(at->ifa_addr);
    if (!gid) continue;
    auto& gids = gid->is_ipv4() ? all : ipv6;
    if (std::ranges::find(gids, *gid) == gids.end()) gids.push_back(*gid);
  }
  all.insert(all.end(), ipv6.begin(), ipv6.end());
  return all;
}

unsigned mtu_of(unsigned interface) {
  const os::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (!socket || ::if_indextoname(interface, request.ifr_name) == nullptr) return 0;
  const bool known = ::ioctl(socket.get(), SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0;
  return known ? static_cast<unsigned>(request.ifr_mtu) : 0;
}

}  // namespace softhca::door
