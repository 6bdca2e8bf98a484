#include "hub/roce_peers.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

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

RocePeers::Set& RocePeers::set_of(const wire::Gid& address) const {
  // The low bits differ in a network; the factor spreads those above them (Knuth 6.4).
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
  constexpr unsigned kShift = 56;
  static_assert(kSets == std::size_t{1} << (64 - kShift));
  const auto mixed =
      util::load_be64(address.bytes.data()) ^ util::load_be64(address.bytes.data() + 8);
  return (*sets_)[(mixed * kFactor) >> kShift];
}

RocePeers::Peer* RocePeers::find(const wire::Gid& address) const {
  auto& set = set_of(address);
  const auto at = std::ranges::find_if(
      set, [&](const Peer& peer) { return peer.noted != 0 && peer.address == address; });
  return at == set.end() ? nullptr : &*at;
}

/// The entry for a new address: a free one, else the oldest source of a packet, else the oldest.
RocePeers::Peer& RocePeers::replace(const wire::Gid& address) {
  auto& peer = *std::ranges::min_element(set_of(address), {}, [](const Peer& one) {
    return std::pair(one.noted != 0 && !one.is_source(), one.noted);
  });
  if (peer.address == last_) last_ = {};  // its next packet is news
  return peer;
}

void RocePeers::note_other_source(const wire::Gid& address) {
  auto* const known = find(address);
  auto& peer = known != nullptr ? *known : replace(address);
  peer = {address, util::Time::min(), ++noted_};
  last_ = address;
}

void RocePeers::ask(const wire::Gid& address, util::Time now) {
  if (find(address) == nullptr) replace(address) = {address, now + kGrace, ++noted_};
}

bool RocePeers::is_beyond(const wire::Gid& address, util::Time now) const {
  const auto* const peer = find(address);
  return peer != nullptr && now >= peer->beyond_from;
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
