// A UDP address of a hub, and the socket's side of a trunk as the sessions see it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace softhca::trunk {

/// IPv6, or IPv4 in its mapped form (RFC 4291 2.5.5.2).
struct Address {
  std::array<std::uint8_t, 16> ip{};
  std::uint16_t port = 0;
  std::uint32_t scope = 0;  ///< the interface of a link-local address

  friend auto operator<=>(const Address&, const Address&) = default;
};

/// "10.0.0.1:24791", "[2001:db8::1]:24791"
std::string to_text(const Address& address);

/// The address of an IPv4 or IPv6 socket.
Address to_address(const sockaddr_storage& from);

class Out {
 public:
  virtual ~Out() = default;
  /// Copies the datagram. It may be lost.
  virtual void send(const Address& to, std::span<const std::byte> datagram) = 0;
};

}  // namespace softhca::trunk
