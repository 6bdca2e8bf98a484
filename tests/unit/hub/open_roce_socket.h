// A socket on RoCEv2's port, as the hub opens one for an address that only one process has.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "hub/roce_socket.h"
#include "hub/udp_address.h"
#include "os/unique_fd.h"
#include "wire/ib_header.h"

namespace softhca::hub {

inline util::Result<std::unique_ptr<RoceSocket>> open_roce_socket(const wire::Gid& address) {
  const auto family = address.is_ipv4() ? AF_INET : AF_INET6;
  os::UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto own = UdpAddress::of(address, wire::kRoceUdpPort);
  if (!socket || ::bind(socket.get(), &own.any, own.size()) != 0) return util::fail_errno("bind");
  RoceSocket::set_merging(socket.get(), true);
  return RoceSocket::adopt(std::move(socket), address);
}

}  // namespace softhca::hub
