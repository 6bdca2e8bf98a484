#include "hub/roce_group.h"

#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hub/roce_socket.h"
#include "spec/infiniband/transport.h"

namespace softhca::hub {
namespace {

using os::UniqueFd;
using Why = RoceRefusal::Kind;
using BthFormat = spec::infiniband::bth;

/// The upper 8 bits of the destination QPN, in a packet that begins with its BTH (IBTA 9.2).
constexpr std::uint32_t kBlockByte = BthFormat::dest_qp.kOffset + 1;
/// UDP_NO_CHECK6_RX of <linux/udp.h>, which does not go with libc's headers.
constexpr int kNoCheck6Receive = 102;
/// Calls that read what the last process of a socket has left, before the socket counts as spoiled.
/// A receive buffer holds far fewer datagrams, and the filter lets no more arrive.
constexpr unsigned kDrainsMax = 1024;

/// A socket address of either family.
struct SocketName {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

SocketName name_of(const wire::Gid& address, std::uint16_t port) {
  SocketName name;
  if (address.is_ipv4()) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&ipv4.sin_addr, address.bytes.data() + 12, sizeof ipv4.sin_addr);
    name.size = sizeof ipv4;
    std::memcpy(&name.bytes, &ipv4, sizeof ipv4);
  } else {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, address.bytes.data(), sizeof ipv6.sin6_addr);
    name.size = sizeof ipv6;
    std::memcpy(&name.bytes, &ipv6, sizeof ipv6);
  }
  return name;
}

wire::Gid address_in(const sockaddr_storage& name, std::uint16_t& port) {
  wire::Gid address;
  if (name.ss_family == AF_INET) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, &name, sizeof ipv4);
    address = wire::Gid::from_ipv4(ntohl(ipv4.sin_addr.s_addr));
    port = ntohs(ipv4.sin_port);
  } else {
    sockaddr_in6 ipv6;
    std::memcpy(&ipv6, &name, sizeof ipv6);
    std::memcpy(address.bytes.data(), &ipv6.sin6_addr, sizeof ipv6.sin6_addr);
    port = ntohs(ipv6.sin6_port);
  }
  return address;
}

bool set_option(int socket, int level, int option, int value) {
  return ::setsockopt(socket, level, option, &value, sizeof value) == 0;
}

/// The UDP checksum of RoCEv2 packets is 0 (IBTA Annex A17 17.3.1), which IPv6 allows only by
/// request.
UniqueFd make_socket(bool ipv4) {
  const int family = ipv4 ? AF_INET : AF_INET6;
  UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool good = ipv4 || (socket && set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
                             set_option(socket.get(), IPPROTO_UDP, kNoCheck6Receive, 1));
  if (!good) socket.reset();
  return socket;
}

bool attach(int socket, int option, std::span<sock_filter> program) {
  const sock_fprog given{.len = static_cast<unsigned short>(program.size()),
                         .filter = program.data()};
  return ::setsockopt(socket, SOL_SOCKET, option, &given, sizeof given) == 0;
}

bool drop_all(int socket) {
  std::array program{sock_filter BPF_STMT(BPF_RET | BPF_K, 0)};
  return attach(socket, SO_ATTACH_FILTER, program);
}

/// Undoes what the last process has done to its socket, as far as it matters to the next one.
/// False: that process has locked the filter (SO_LOCK_FILTER).
bool reset(int socket) {
  if (!drop_all(socket)) return false;
  const sockaddr nothing{.sa_family = AF_UNSPEC, .sa_data = {}};
  ::connect(socket, &nothing, sizeof nothing);  // a connected socket receives from one peer only
  return true;
}

/// Datagrams that the kernel has dropped at the socket.
std::uint32_t drops_of(int socket) {
  std::array<std::uint32_t, SK_MEMINFO_VARS> values{};
  socklen_t size = sizeof values;
  if (::getsockopt(socket, SOL_SOCKET, SO_MEMINFO, values.data(), &size) != 0) return 0;
  return values[SK_MEMINFO_DROPS];
}

void read_control(msghdr& message, RoceGroup::Datagram& datagram) {
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    const auto is = [&](int level, int type) {
      return part->cmsg_level == level && part->cmsg_type == type;
    };
    int value = 0;
    if (is(IPPROTO_IP, IP_TOS)) {  // of one byte
      std::memcpy(&datagram.traffic_class, CMSG_DATA(part), 1);
      continue;
    }
    std::memcpy(&value, CMSG_DATA(part), sizeof value);
    if (is(IPPROTO_IPV6, IPV6_TCLASS)) datagram.traffic_class = static_cast<std::uint8_t>(value);
    if (is(IPPROTO_IP, IP_TTL) || is(IPPROTO_IPV6, IPV6_HOPLIMIT)) {
      datagram.hop_limit = static_cast<std::uint8_t>(value);
    }
  }
}

bool is_fit(const wire::Gid& address) {
  const bool any = address.is_zero() || (address.is_ipv4() && address.to_ipv4() == 0);
  return !any && !address.is_multicast() && !address.is_link_local();
}

}  // namespace

std::unique_ptr<RoceGroup> RoceGroup::open(const wire::Gid& address, std::uint16_t port,
                                           RoceRefusal& refusal) {
  if (!is_fit(address)) {
    refusal = {.kind = Why::kUnfit};
    return nullptr;
  }
  std::unique_ptr<RoceGroup> group(new RoceGroup(address, port));
  // Two members make a group, which the program needs.
  if (!group->open_first(refusal) || !group->open_next(refusal)) group.reset();
  return group;
}

bool RoceGroup::bind(int socket, RoceRefusal& refusal) const {
  const auto name = name_of(address_, port_);
  if (::bind(socket, name.get(), name.size) == 0) return true;
  if (errno == EADDRINUSE) {
    refusal = find_holder(address_, port_);
  } else if (errno == EADDRNOTAVAIL) {
    refusal = {.kind = Why::kNoSuchAddress, .error = errno};
  } else {
    refusal = {.kind = Why::kFailed, .error = errno};
  }
  return false;
}

/// Binds it without SO_REUSEPORT, which fails if any other process has the port. With the option,
/// it would join the group of another hub of the same user.
bool RoceGroup::open_first(RoceRefusal& refusal) {
  const bool ipv4 = address_.is_ipv4();
  auto socket = make_socket(ipv4);
  if (!socket) return refusal = {.kind = Why::kFailed, .error = errno}, false;
  if (!bind(socket.get(), refusal)) return false;
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  const bool good = set_option(socket.get(), SOL_SOCKET, SO_REUSEPORT, 1) &&
                    set_option(socket.get(), level, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1) &&
                    set_option(socket.get(), level, ipv4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, 1);
  members_.push_back({.socket = std::move(socket)});
  if (!good) refusal = {.kind = Why::kFailed, .error = errno};
  return good;
}

/// The filter of the new member drops all packets.
bool RoceGroup::open_next(RoceRefusal& refusal) {
  auto socket = make_socket(address_.is_ipv4());
  if (!socket || !set_option(socket.get(), SOL_SOCKET, SO_REUSEPORT, 1) ||
      !drop_all(socket.get())) {
    refusal = {.kind = Why::kFailed, .error = errno};
    return false;
  }
  if (!bind(socket.get(), refusal)) return false;
  members_.push_back({.socket = std::move(socket)});
  if (steer()) return true;
  refusal = {.kind = Why::kFailed, .error = errno};
  members_.pop_back();  // the last one: no other changes its number
  return false;
}

/// Replaces the program. A packet that is too short for its load goes to member 0.
bool RoceGroup::steer() const {
  const auto members = static_cast<std::uint32_t>(members_.size());
  std::array program{sock_filter BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kBlockByte),
                     sock_filter BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, members, 0, 1),
                     sock_filter BPF_STMT(BPF_RET | BPF_K, 0),
                     sock_filter BPF_STMT(BPF_RET | BPF_A, 0)};
  return attach(own(), SO_ATTACH_REUSEPORT_CBPF, program);
}

int RoceGroup::admit(RoceBlock block, RoceRefusal& refusal) {
  while (members_.size() <= block) {
    if (!open_next(refusal)) return -1;
  }
  auto& member = members_[block];
  for (int i = 0; i != 2 && !member.is_drained; ++i) drain(member);  // the second finds it empty
  // The option has no value, but Linux wants one.
  if (member.is_spoiled || !member.is_drained ||
      !set_option(member.socket.get(), SOL_SOCKET, SO_DETACH_FILTER, 0)) {
    refusal = {.kind = Why::kSpoiled};
    return -1;
  }
  count_drops(member);
  member.in_use = true;
  blocks_.push_back(block);
  allow_merging();
  return member.socket.get();
}

/// The program steers merged datagrams by the first one, so they must all be for one process.
void RoceGroup::allow_merging() const {
  for (const auto block : blocks_) {
    RoceSocket::set_merging(members_[block].socket.get(), blocks_.size() == 1);
  }
}

void RoceGroup::leave(RoceBlock block) {
  auto& member = members_[block];
  member.in_use = false;
  member.is_spoiled = !reset(member.socket.get());
  member.is_drained = false;
  member.drains = 0;
  member.drops = drops_of(member.socket.get());  // what its process lost is not counted here
  std::erase(blocks_, block);
  RoceSocket::set_merging(member.socket.get(), false);
  allow_merging();
}

bool RoceGroup::drain() {
  const auto at = std::ranges::find_if(members_, [](const Member& one) {
    return !one.in_use && !one.is_spoiled && !one.is_drained;
  });
  if (at == members_.end()) return false;
  drain(*at);
  return true;
}

/// Reads up to kDrainedAtOnce datagrams, without buffers for them.
void RoceGroup::drain(Member& member) {
  std::array<mmsghdr, kDrainedAtOnce> messages{};
  const int taken =
      ::recvmmsg(member.socket.get(), messages.data(), kDrainedAtOnce, MSG_DONTWAIT, nullptr);
  member.is_drained = taken < 0 && errno == EAGAIN;
  if (++member.drains == kDrainsMax && !member.is_drained) member.is_spoiled = true;
}

void RoceGroup::count_drops(Member& member) {
  const auto drops = drops_of(member.socket.get());
  member.dropped += drops - member.drops;
  member.drops = drops;
}

RoceGroup::Counters RoceGroup::counters() const {
  Counters counters;
  counters.overflow = drops_of(own());
  for (const auto& member : std::span(members_).subspan(1)) {
    counters.dropped += member.dropped;
    if (!member.in_use) counters.dropped += drops_of(member.socket.get()) - member.drops;
  }
  return counters;
}

bool RoceGroup::receive(std::span<std::byte> buffer, Datagram& datagram) const {
  sockaddr_storage from{};
  iovec part{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, 2 * CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size = 0;
  do {
    size = ::recvmsg(own(), &message, MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return false;
  datagram = {};
  datagram.from = address_in(from, datagram.source_port);
  datagram.packet = buffer.first(static_cast<std::size_t>(size));
  read_control(message, datagram);
  return true;
}

}  // namespace softhca::hub
