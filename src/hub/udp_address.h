// GIDs as socket addresses of RoCEv2's UDP port, and back.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "util/endian.h"
#include "wire/gid.h"

namespace softhca::hub {

/// An address of either IP version.
union UdpAddress {
  sockaddr any;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;

  static UdpAddress of(const wire::Gid& gid, std::uint16_t port) {
    UdpAddress address{};
    if (gid.is_ipv4()) {
      address.ipv4.sin_family = AF_INET;
      address.ipv4.sin_port = htons(port);
      address.ipv4.sin_addr.s_addr = htonl(gid.to_ipv4());
    } else {
      address.ipv6.sin6_family = AF_INET6;
      address.ipv6.sin6_port = htons(port);
      std::memcpy(&address.ipv6.sin6_addr, gid.bytes.data(), gid.bytes.size());
    }
    return address;
  }
  socklen_t size() const {
    return any.sa_family == AF_INET ? socklen_t{sizeof ipv4} : socklen_t{sizeof ipv6};
  }
  wire::Gid gid() const {
    if (any.sa_family == AF_INET) return wire::Gid::from_ipv4(ntohl(ipv4.sin_addr.s_addr));
    wire::Gid gid;
    std::memcpy(gid.bytes.data(), &ipv6.sin6_addr, gid.bytes.size());
    return gid;
  }
  std::uint16_t port() const {
    return ntohs(any.sa_family == AF_INET ? ipv4.sin_port : ipv6.sin6_port);
  }
};

}  // namespace softhca::hub
