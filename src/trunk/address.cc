#include "trunk/address.h"

#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>
#include <span>

#include "wire/address_text.h"

namespace softhca::trunk {

std::string to_text(const Address& address) {
  const auto gid = wire::Gid::from(std::as_bytes(std::span(address.ip)));
  const auto ip = wire::text_of(gid);
  return gid.is_ipv4() ? fmt::format("{}:{}", ip, address.port)
                       : fmt::format("[{}]:{}", ip, address.port);
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
