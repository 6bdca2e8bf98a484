#include "rdma_cm/identifier.h"

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cstring>

namespace softhca::rdma_cm {
namespace {

const sockaddr_in& v4(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in&>(storage);
}
const sockaddr_in6& v6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6&>(storage);
}

}  // namespace

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(v4(storage).sin_port);
  if (family() == kFamilyIb) {
    const auto& ib = reinterpret_cast<const IbAddress&>(storage);
    return static_cast<std::uint16_t>(be64toh(ib.service & ib.service_mask));
  }
  return family() == AF_INET6 ? ntohs(v6(storage).sin6_port) : 0;
}

void SocketAddress::set_port(std::uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

std::uint16_t SocketAddress::size() const {
  if (family() == AF_INET) return sizeof(sockaddr_in);
  if (family() == kFamilyIb) return sizeof(IbAddress);
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

bool SocketAddress::is_any() const {
  if (family() == AF_INET) return v4(storage).sin_addr.s_addr == 0;
  return !has_gid() || IN6_IS_ADDR_UNSPECIFIED(&v6(storage).sin6_addr);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET)
    return ntohl(v4(storage).sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
  return has_gid() && IN6_IS_ADDR_LOOPBACK(&v6(storage).sin6_addr);
}

bool SocketAddress::is_broadcast() const {
  return family() == AF_INET && v4(storage).sin_addr.s_addr == INADDR_NONE;
}

bool SocketAddress::is_mapped() const {
  return family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6(storage).sin6_addr);
}

bool SocketAddress::lacks_scope() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(storage).sin6_addr) &&
         v6(storage).sin6_scope_id == 0;
}

void SocketAddress::take_scope(const SocketAddress& other) {
  if (family() != AF_INET6 || other.family() != AF_INET6) return;
  reinterpret_cast<sockaddr_in6&>(storage).sin6_scope_id = v6(other.storage).sin6_scope_id;
}

bool SocketAddress::is_multicast() const {
  if (family() == AF_INET) return IN_MULTICAST(ntohl(v4(storage).sin_addr.s_addr));
  return family() == AF_INET6 && IN6_IS_ADDR_MULTICAST(&v6(storage).sin6_addr);
}

driver::Gid SocketAddress::gid() const {
  driver::Gid gid{};
  if (has_gid()) {
    std::memcpy(gid.bytes.data(), &v6(storage).sin6_addr, gid.bytes.size());
  } else {
    util::store_be16(gid.bytes.data() + 10, 0xffff);
    std::memcpy(gid.bytes.data() + 12, &v4(storage).sin_addr, 4);
  }
  return gid;
}

SocketAddress SocketAddress::of(const driver::Gid& gid, std::uint16_t port) {
  SocketAddress address;
  if (gid.is_ipv4()) {
    auto& to = reinterpret_cast<sockaddr_in&>(address.storage);
    to.sin_family = AF_INET;
    std::memcpy(&to.sin_addr, gid.bytes.data() + 12, 4);
  } else {
    auto& to = reinterpret_cast<sockaddr_in6&>(address.storage);
    to.sin6_family = AF_INET6;
    std::memcpy(&to.sin6_addr, gid.bytes.data(), gid.bytes.size());
  }
  address.set_port(port);
  return address;
}

SocketAddress SocketAddress::any(std::uint16_t family) {
  SocketAddress address;
  address.storage.ss_family = family;
  return address;
}

}  // namespace softhca::rdma_cm
