#include "trunk/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace softhca::trunk {

std::string to_text(const Address& address) {
  in6_addr ip;
  std::memcpy(&ip, address.ip.data(), sizeof ip);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&ip)) {
    ::inet_ntop(AF_INET, address.ip.data() + 12, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), address.port);
  }
  ::inet_ntop(AF_INET6, &ip, text.data(), text.size());
  return fmt::format("[{}]:{}", text.data(), address.port);
}

Address to_address(const sockaddr_storage& from) {
  Address address;
  if (from.ss_family == AF_INET) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, &from, sizeof ipv4);
    address.ip[10] = address.ip[11] = 0xff;
    std::memcpy(address.ip.data() + 12, &ipv4.sin_addr, sizeof ipv4.sin_addr);
    address.port = ntohs(ipv4.sin_port);
    return address;
  }
  sockaddr_in6 ipv6;
  std::memcpy(&ipv6, &from, sizeof ipv6);
  std::memcpy(address.ip.data(), &ipv6.sin6_addr, sizeof ipv6.sin6_addr);
  address.port = ntohs(ipv6.sin6_port);
  address.scope = ipv6.sin6_scope_id;
  return address;
}

}  // namespace softhca::trunk
