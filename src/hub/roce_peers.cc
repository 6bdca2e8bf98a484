#include "hub/roce_peers.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "hub/udp_address.h"
#include "os/unique_fd.h"
#include "util/endian.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

bool is_loopback(const wire::Gid& gid) {
  constexpr std::byte kNet{127};
  if (gid.is_ipv4()) return gid.bytes[12] == kNet;
  return util::load_be64(gid.bytes.data()) == 0 && util::load_be64(gid.bytes.data() + 8) == 1;
}

}  // namespace

RocePeers::Peer& RocePeers::at(const wire::Gid& address) const {
  // The low bits differ in a network; the factor spreads those above them (Knuth 6.4).
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
  constexpr unsigned kShift = 54;
  static_assert(kPeersMax == std::size_t{1} << (64 - kShift));
  const auto mixed =
      util::load_be64(address.bytes.data()) ^ util::load_be64(address.bytes.data() + 8);
  return (*peers_)[(mixed * kFactor) >> kShift];
}

void RocePeers::hear_another(const wire::Gid& address) {
  last_ = address;
  at(address) = {address, util::Time::min()};
}

void RocePeers::ask(const wire::Gid& address, util::Time now) {
  auto& peer = at(address);
  if (peer.address != address) peer = {address, now + kGrace};
}

bool RocePeers::is_beyond(const wire::Gid& address, util::Time now) const {
  const auto& peer = at(address);
  return peer.address == address && now >= peer.beyond_from;
}

std::optional<UdpRoute> find_route(const wire::Gid& from, const wire::Gid& to) {
  if (from.is_ipv4() != to.is_ipv4() || to.is_multicast() || to.is_link_local() ||
      is_loopback(to)) {
    return std::nullopt;
  }
  const bool is_ipv4 = to.is_ipv4();
  const os::UniqueFd socket(
      ::socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto source = UdpAddress::of(from, 0);
  const auto destination = UdpAddress::of(to, wire::kRoceUdpPort);
  // Connecting a UDP socket sends nothing: it looks up the route.
  if (!socket || ::bind(socket.get(), &source.any, source.size()) != 0 ||
      ::connect(socket.get(), &destination.any, destination.size()) != 0) {
    return std::nullopt;
  }
  int mtu = 0;
  socklen_t size = sizeof mtu;
  const bool known = ::getsockopt(socket.get(), is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                                  is_ipv4 ? IP_MTU : IPV6_MTU, &mtu, &size) == 0 &&
                     mtu > 0;
  return UdpRoute{known ? static_cast<unsigned>(mtu) : 0};
}

}  // namespace softhca::hub
