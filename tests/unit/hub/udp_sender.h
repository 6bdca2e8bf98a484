// UDP on loopback: a sender, and what arrives at sockets.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "hub/roce_blocks.h"
#include "os/unique_fd.h"
#include "wire/gid.h"

namespace softhca::hub {

/// Long enough for any machine: the kernel delivers on loopback while it sends.
constexpr int kDeadlineMs = 20'000;

class UdpSender {
 public:
  /// Sends from a free port of `address`.
  explicit UdpSender(const wire::Gid& address) : ipv4_(address.is_ipv4()) {
    socket_.reset(::socket(ipv4_ ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto name = name_of(address, 0);
    EXPECT_EQ(::bind(socket_.get(), pointer(name), size()), 0) << std::strerror(errno);
  }

  void send(const wire::Gid& address, std::uint16_t port, std::span<const std::byte> bytes) const {
    const auto name = name_of(address, port);
    EXPECT_EQ(::sendto(socket_.get(), bytes.data(), bytes.size(), 0, pointer(name), size()),
              static_cast<ssize_t>(bytes.size()))
        << std::strerror(errno);
  }
  void set_traffic_class(int value) const {
    set(ipv4_ ? IPPROTO_IP : IPPROTO_IPV6, ipv4_ ? IP_TOS : IPV6_TCLASS, value);
  }
  void set_hop_limit(int value) const {
    set(ipv4_ ? IPPROTO_IP : IPPROTO_IPV6, ipv4_ ? IP_TTL : IPV6_UNICAST_HOPS, value);
  }
  void send_no_checksums() const {
    constexpr int kNoCheck6Send = 101;  // UDP_NO_CHECK6_TX of <linux/udp.h>
    set(ipv4_ ? SOL_SOCKET : IPPROTO_UDP, ipv4_ ? SO_NO_CHECK : kNoCheck6Send, 1);
  }
  std::uint16_t port() const {
    const auto name = own_name();
    return ntohs(ipv4_ ? reinterpret_cast<const sockaddr_in&>(name).sin_port
                       : reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
  }
  void connect_to_me(int socket) const {
    const auto name = own_name();
    EXPECT_EQ(::connect(socket, pointer(name), size()), 0) << std::strerror(errno);
  }

 private:
  static const sockaddr* pointer(const sockaddr_storage& name) {
    return reinterpret_cast<const sockaddr*>(&name);
  }
  socklen_t size() const { return ipv4_ ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }
  void set(int level, int option, int value) const {
    EXPECT_EQ(::setsockopt(socket_.get(), level, option, &value, sizeof value), 0);
  }
  sockaddr_storage own_name() const {
    sockaddr_storage name{};
    socklen_t bytes = sizeof name;
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
    return name;
  }
  static sockaddr_storage name_of(const wire::Gid& address, std::uint16_t port) {
    sockaddr_storage name{};
    if (address.is_ipv4()) {
      auto& ipv4 = reinterpret_cast<sockaddr_in&>(name);
      ipv4.sin_family = AF_INET;
      ipv4.sin_port = htons(port);
      ipv4.sin_addr.s_addr = htonl(address.to_ipv4());
    } else {
      auto& ipv6 = reinterpret_cast<sockaddr_in6&>(name);
      ipv6.sin6_family = AF_INET6;
      ipv6.sin6_port = htons(port);
      std::memcpy(&ipv6.sin6_addr, address.bytes.data(), sizeof ipv6.sin6_addr);
    }
    return name;
  }

  const bool ipv4_;
  os::UniqueFd socket_;
};

/// A port that no other test uses now.
inline std::uint16_t free_port(const wire::Gid& address) { return UdpSender(address).port(); }

/// The beginning of a packet to a QP of the block.
inline std::vector<std::byte> packet_to(RoceBlock block, std::uint8_t mark) {
  std::vector<std::byte> packet(16);
  packet[5] = std::byte{block};
  packet[7] = std::byte{1};
  packet[15] = std::byte{mark};
  return packet;
}

inline bool is_readable(int socket) {
  pollfd one{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, kDeadlineMs) == 1;
}

inline bool is_quiet(int socket) {
  pollfd one{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 0) == 0;
}

inline std::vector<std::byte> received_at(int socket) {
  if (!is_readable(socket)) return {};
  std::vector<std::byte> bytes(2048);
  const auto size = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return bytes;
}

}  // namespace softhca::hub
