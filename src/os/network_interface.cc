#include "os/network_interface.h"

#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace softhca::os {
namespace {

/// Most datagrams that can precede the answer to a request.
constexpr int kDatagramsBefore = 1000;

/// Bytes of a message about an interface with many virtual functions are more than a page.
using Buffer = std::array<char, 32768>;

void read_message(const nlmsghdr& header, unsigned index, NetworkInterface::State& state) {
  // The answer to a request about an interface that has gone.
  if (header.nlmsg_type == NLMSG_ERROR) {
    state = {};
    return;
  }
  if (header.nlmsg_type != RTM_NEWLINK && header.nlmsg_type != RTM_DELLINK) return;
  if (header.nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) return;
  const auto& link = *static_cast<const ifinfomsg*>(NLMSG_DATA(&header));
  // A bridge speaks of its ports in the same messages, with its own family.
  if (link.ifi_family != AF_UNSPEC || static_cast<unsigned>(link.ifi_index) != index) return;
  if (header.nlmsg_type == RTM_DELLINK) {
    state = {};
    return;
  }
  state.exists = true;
  state.up = (link.ifi_flags & IFF_UP) != 0;
  state.carrier = state.up && (link.ifi_flags & IFF_RUNNING) != 0;
  auto left = static_cast<int>(header.nlmsg_len - NLMSG_LENGTH(sizeof link));
  for (const auto* part = IFLA_RTA(&link); RTA_OK(part, left); part = RTA_NEXT(part, left)) {
    if (part->rta_type != IFLA_MTU || RTA_PAYLOAD(part) < sizeof state.mtu) continue;
    std::memcpy(&state.mtu, RTA_DATA(part), sizeof state.mtu);
  }
}

/// Discards all datagrams that wait. After it had no room, the kernel drops further ones, answers
/// too, until the socket is empty.
void drain(int socket) {
  char byte = 0;
  for (int i = 0; i != kDatagramsBefore; ++i) {
    const bool is_empty =
        ::recv(socket, &byte, sizeof byte, MSG_DONTWAIT) < 0 && errno != ENOBUFS && errno != EINTR;
    if (is_empty) return;
  }
}

}  // namespace

util::Result<NetworkInterface> NetworkInterface::follow(unsigned index) {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!socket) return util::fail_errno("rtnetlink");
  sockaddr_nl groups{};
  groups.nl_family = AF_NETLINK;
  groups.nl_groups = RTMGRP_LINK;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&groups), sizeof groups) != 0) {
    return util::fail_errno("rtnetlink: bind");
  }
  NetworkInterface interface(std::move(socket), index);
  if (!interface.ask()) return util::fail_errno("rtnetlink: RTM_GETLINK");
  // The kernel has answered within the request.
  for (int i = 0; i != kDatagramsBefore && interface.read_messages(); ++i) {
  }
  if (!interface.state_.exists) return util::fail("the interface has gone");
  return interface;
}

/// Requests the whole state.
bool NetworkInterface::ask() {
  struct {
    nlmsghdr header;
    ifinfomsg link;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.link.ifi_family = AF_UNSPEC;
  request.link.ifi_index = static_cast<int>(index_);
  return ::send(socket_.get(), &request, sizeof request, 0) >= 0;
}

/// False: no message waits.
bool NetworkInterface::read_messages() {
  alignas(nlmsghdr) Buffer buffer;
  sockaddr_nl from{};
  socklen_t from_size = sizeof from;
  const auto size = ::recvfrom(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT,
                               reinterpret_cast<sockaddr*>(&from), &from_size);
  if (size < 0) {
    // The kernel had no room for a message, so the state is unknown.
    if (errno != ENOBUFS) return errno == EINTR;
    drain(socket_.get());
    return ask();
  }
  if (from.nl_pid != 0) return true;  // not the kernel
  auto left = static_cast<unsigned>(size);
  for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data());
       NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
    read_message(*header, index_, state_);
  }
  return true;
}

bool NetworkInterface::update() {
  const auto before = state_;
  (void)read_messages();
  return state_ != before;
}

util::Result<void> check_interface_name(const std::string& name) {
  const auto is_bad = [](char c) {
    return c <= ' ' || c > '~' || c == '/' || c == ':' || c == '%';
  };
  if (!name.empty() && name.size() < IFNAMSIZ && name != "." && name != ".." &&
      std::ranges::none_of(name, is_bad)) {
    return {};
  }
  return util::fail(
      fmt::format("'{}' cannot be the name of an interface (1 to {} characters, without blanks, "
                  "/, : and %)",
                  name, IFNAMSIZ - 1));
}

}  // namespace softhca::os
