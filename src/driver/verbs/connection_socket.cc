// Exchange of endpoints over a socket.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "driver/verbs/connection.h"
#include "spec/infiniband/constants.h"
#include "util/endian.h"

namespace softhca::driver::verbs {

namespace {

constexpr std::size_t kSize = 80;
constexpr std::uint32_t kMagic = 0x51504531;  ///< "QPE1", which includes the version of the format
using Bytes = std::array<std::byte, kSize>;

// Byte offsets.
constexpr std::size_t kType = 4, kMtu = 6, kQpn = 8, kPsn = 12, kQkey = 16, kReads = 20, kGid = 24,
                      kMac = 40, kLid = 46, kAddress = 48, kLength = 56, kRkey = 64;

Bytes to_bytes(const Endpoint& end) {
  Bytes out{};
  auto* const at = out.data();
  util::store_be32(at, kMagic);
  util::store_be16(at + kType, static_cast<std::uint16_t>(end.type));
  util::store_be16(at + kMtu, static_cast<std::uint16_t>(end.path_mtu));
  util::store_be32(at + kQpn, end.qpn);
  util::store_be32(at + kPsn, end.psn);
  util::store_be32(at + kQkey, end.qkey);
  util::store_be32(at + kReads, end.reads);
  std::ranges::copy(end.gid.bytes, at + kGid);
  std::ranges::copy(end.mac.bytes, at + kMac);
  util::store_be16(at + kLid, end.lid);
  util::store_be64(at + kAddress, end.address);
  util::store_be64(at + kLength, end.length);
  util::store_be32(at + kRkey, end.rkey);
  return out;
}

util::Result<Endpoint> from_bytes(const Bytes& in) {
  const auto* const at = in.data();
  if (util::load_be32(at) != kMagic) {
    return util::fail("the peer says something that is no endpoint of a connection");
  }
  const auto type = util::load_be16(at + kType);
  if (type >= spec::infiniband::kQpTypes) return util::fail("the peer's service is unknown");
  Endpoint end;
  end.type = static_cast<QpType>(type);
  end.path_mtu = util::load_be16(at + kMtu);
  end.qpn = util::load_be32(at + kQpn);
  end.psn = util::load_be32(at + kPsn);
  if (end.qpn > spec::infiniband::kQpnMask || end.psn > spec::infiniband::kPsnMask) {
    return util::fail("the peer's QPN or PSN has more than 24 bits");
  }
  end.qkey = util::load_be32(at + kQkey);
  end.reads = util::load_be32(at + kReads);
  std::copy_n(at + kGid, end.gid.bytes.size(), end.gid.bytes.begin());
  std::copy_n(at + kMac, end.mac.bytes.size(), end.mac.bytes.begin());
  end.lid = util::load_be16(at + kLid);
  end.address = util::load_be64(at + kAddress);
  end.length = util::load_be64(at + kLength);
  end.rkey = util::load_be32(at + kRkey);
  return end;
}

}  // namespace

util::Result<void> send_endpoint(int fd, const Endpoint& endpoint) {
  const auto bytes = to_bytes(endpoint);
  for (std::size_t done = 0; done != kSize;) {
    const auto put = ::send(fd, bytes.data() + done, kSize - done, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return util::fail_errno("sending the connection parameters");
    done += static_cast<std::size_t>(put);
  }
  return {};
}

util::Result<Endpoint> receive_endpoint(int fd) {
  Bytes bytes{};
  for (std::size_t done = 0; done != kSize;) {
    const auto got = ::recv(fd, bytes.data() + done, kSize - done, 0);
    if (got == 0) return util::fail("the peer has gone without saying who it is");
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return util::fail_errno("hearing who the peer is");
    done += static_cast<std::size_t>(got);
  }
  return from_bytes(bytes);
}

util::Result<int> dial(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const auto where = fmt::format("{}:{}", host, port);
  const int wrong = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (wrong != 0) return util::fail(fmt::format("{}: {}", where, ::gai_strerror(wrong)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  for (const auto* one = found; one != nullptr; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    if (fd < 0) continue;
    if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0) return fd;
    ::close(fd);
  }
  return util::fail_errno(where);
}

util::Result<int> accept_one(std::uint16_t port) {
  const auto where = fmt::format("TCP port {}", port);
  const int listener = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return util::fail_errno(where);
  const int on = 1;
  (void)::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_any;
  int fd = -1;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(listener, 1) == 0) {
    fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  }
  auto failed = util::fail_errno(where);
  ::close(listener);
  if (fd < 0) return failed;
  return fd;
}

}  // namespace softhca::driver::verbs
