// Addresses in the form that users write.
#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "trunk/udp_trunk.h"

namespace softhca::trunk {
namespace {

struct HostPort {
  std::string host;
  std::optional<std::uint16_t> port = std::nullopt;
};

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc() || at != end || port == 0) return std::nullopt;
  return port;
}

/// Nothing: the port is wrong, or a bracket is missing. An IPv6 address without brackets has no
/// port.
std::optional<HostPort> split(std::string_view text) {
  std::string_view rest;
  HostPort result;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    result.host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return std::nullopt;
  } else {
    const auto colon = text.find(':');
    const bool is_ipv6 = colon != std::string_view::npos && text.rfind(':') != colon;
    result.host = is_ipv6 ? text : text.substr(0, colon);
    if (!is_ipv6 && colon != std::string_view::npos) rest = text.substr(colon);
  }
  if (rest.empty()) return result;
  result.port = parse_port(rest.substr(1));
  if (!result.port) return std::nullopt;
  return result;
}

util::Result<Address> look_up(const std::string& host, std::uint16_t port, int flags,
                              int family = AF_UNSPEC) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const auto error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return util::fail(::gai_strerror(error));
  }
  sockaddr_storage storage{};
  std::memcpy(&storage, found->ai_addr, std::min<std::size_t>(found->ai_addrlen, sizeof storage));
  ::freeaddrinfo(found);
  auto address = to_address(storage);
  address.port = port;
  return address;
}

}  // namespace

util::Result<Address> resolve(const std::string& text, int family) {
  const auto parts = split(text);
  if (!parts || parts->host.empty()) {
    return util::fail(fmt::format("--join '{}': want HOST or HOST:PORT", text));
  }
  const auto port = parts->port.value_or(kPort);
  auto address = look_up(parts->host, port, AI_ADDRCONFIG, family);
  // UdpTrunk::create() says that the family is another one.
  if (!address && family != AF_UNSPEC) address = look_up(parts->host, port, AI_ADDRCONFIG);
  if (!address) {
    return util::fail(fmt::format("--join '{}': {}", text, address.error().message));
  }
  return address;
}

int family_of(const Address& listen) {
  static constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};
  if (listen.ip == Address{}.ip) return AF_UNSPEC;
  return std::equal(kMapped.begin(), kMapped.end(), listen.ip.begin()) ? AF_INET : AF_INET6;
}

util::Result<Address> parse_listen(const std::string& text) {
  if (const auto port = parse_port(text)) {
    Address any;
    any.port = *port;
    return any;
  }
  // getaddrinfo(3) takes a number for an address.
  const bool is_number = text.find_first_not_of("0123456789") == std::string::npos;
  const auto parts = is_number ? std::nullopt : split(text);
  auto address = parts && !parts->host.empty()
                     ? look_up(parts->host, parts->port.value_or(kPort), AI_NUMERICHOST)
                     : util::Result<Address>(util::fail(""));
  if (!address) {
    return util::fail(fmt::format(
        "--listen '{}': want PORT, ADDRESS or ADDRESS:PORT, with an address of this machine",
        text));
  }
  return address;
}

}  // namespace softhca::trunk
