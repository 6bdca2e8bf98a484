#include "os/packet_socket.h"

#include <fmt/format.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "os/network_interface.h"
#include "util/endian.h"

namespace softhca::os {
namespace {

/// Room for frames that wait, if the limits of the machine allow it.
constexpr int kReceiveBytes = 4 << 20;

/// virtio_net_hdr of linux/virtio_net.h, which is no C++. It precedes each frame (PACKET_VNET_HDR),
/// in the machine's byte order.
struct Preface {
  static constexpr std::uint8_t kNeedsChecksum = 1;
  enum Merge : std::uint8_t { kNone = 0, kTcp4 = 1, kTcp6 = 4, kUdp = 5, kWithEcn = 0x80 };

  std::uint8_t flags;
  std::uint8_t merge;
  std::uint16_t header_size;
  std::uint16_t segment;
  std::uint16_t checksum_start;
  std::uint16_t checksum_offset;
};
static_assert(sizeof(Preface) == 10);

constexpr std::size_t kAddresses = 2 * ETH_ALEN;
/// IEEE 802.1Q 9.6.
struct Tag {
  std::uint16_t type;
  std::uint16_t control;
};
constexpr std::size_t kTag = 4;

template <class Value>
bool set(int fd, int option, const Value& value) {
  return ::setsockopt(fd, SOL_PACKET, option, &value, sizeof value) == 0;
}

/// False: it is of another kind, or its kind is unknown.
bool is_ethernet(int fd, const std::string& interface) {
  ifreq request{};
  std::memcpy(request.ifr_name, interface.data(), interface.size());
  return ::ioctl(fd, SIOCGIFHWADDR, &request) == 0 && request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

util::Result<void> set_up(int fd, const std::string& interface, unsigned index) {
  packet_mreq membership{};
  membership.mr_ifindex = static_cast<int>(index);
  membership.mr_type = PACKET_MR_PROMISC;
  if (!set(fd, PACKET_IGNORE_OUTGOING, 1) || !set(fd, PACKET_VNET_HDR, 1) ||
      !set(fd, PACKET_AUXDATA, 1) || !set(fd, PACKET_ADD_MEMBERSHIP, membership)) {
    return util::fail_errno(interface + ": options of a packet socket (Linux 4.20 has them)");
  }
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBytes, sizeof kReceiveBytes) != 0) {
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBytes, sizeof kReceiveBytes);
  }
  // Until then it receives nothing: its protocol is 0.
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return util::fail_errno(interface + ": bind");
  }
  return {};
}

/// The VLAN tag that the kernel has taken off.
std::optional<Tag> tag_of(msghdr& message) {
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_PACKET || part->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata data;
    std::memcpy(&data, CMSG_DATA(part), sizeof data);
    if ((data.tp_status & TP_STATUS_VLAN_VALID) == 0) return std::nullopt;
    const bool typed = (data.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    return Tag{.type = typed ? data.tp_vlan_tpid : std::uint16_t{ETH_P_8021Q},
               .control = data.tp_vlan_tci};
  }
  return std::nullopt;
}

/// False: the frame is merged of packets that the caller cannot make again.
bool read(const Preface& preface, std::size_t shift, FrameFile::Rest& rest) {
  if ((preface.flags & Preface::kNeedsChecksum) != 0) {
    rest.checksum = true;
    rest.start = static_cast<std::uint16_t>(preface.checksum_start + shift);
    rest.offset = preface.checksum_offset;
  }
  const auto merge = preface.merge & ~Preface::kWithEcn;
  if (merge == Preface::kNone) return true;
  rest.segment = preface.segment;
  rest.tcp = merge == Preface::kTcp4 || merge == Preface::kTcp6;
  return rest.segment != 0 && (rest.tcp || merge == Preface::kUdp);
}

}  // namespace

util::Result<std::unique_ptr<PacketSocket>> PacketSocket::open(const std::string& interface) {
  if (auto good = check_interface_name(interface); !good) return tl::unexpected(good.error());
  const auto index = ::if_nametoindex(interface.c_str());
  if (index == 0) {
    return util::fail(fmt::format("there is no interface {}; ip link lists them", interface));
  }
  UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd && errno == EPERM) {
    return util::fail(
        "packet sockets need CAP_NET_RAW: run this as root, or give it to the program by "
        "setcap cap_net_raw+ep");
  }
  if (!fd) return util::fail_errno("packet socket");
  if (!is_ethernet(fd.get(), interface)) {
    return util::fail(fmt::format("{} is no Ethernet interface", interface));
  }
  if (auto good = set_up(fd.get(), interface, index); !good) return tl::unexpected(good.error());
  return std::unique_ptr<PacketSocket>(new PacketSocket(std::move(fd), index));
}

FrameFile::Sent PacketSocket::send(std::span<const iovec> pieces) {
  // An empty preface: the frame is one packet, and complete.
  Preface preface{};
  std::array<iovec, kPiecesMax + 1> all;
  all[0] = {&preface, sizeof preface};
  std::ranges::copy(pieces, all.begin() + 1);
  msghdr message{};
  message.msg_iov = all.data();
  message.msg_iovlen = pieces.size() + 1;
  if (::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::kSent;
  switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
      return Sent::kFull;
    case EMSGSIZE:
      return Sent::kTooLong;
    case ENETDOWN:
    case ENXIO:
    case ENODEV:
      return Sent::kDown;
    case EFAULT:
      return Sent::kUnreadable;
    default:
      return Sent::kRefused;
  }
}

FrameFile::Received PacketSocket::receive(std::span<std::byte> room) {
  using Status = Received::Status;
  Preface preface{};
  // There is room for a tag before the frame, whose addresses then move.
  std::array<iovec, 2> pieces{iovec{&preface, sizeof preface},
                              iovec{room.data() + kTag, room.size() - kTag}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(tpacket_auxdata))> control;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto size = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  if (size < 0) {
    // A merged frame of a kind that the preface cannot describe.
    return {.status = errno == EINVAL ? Status::kUnfit : Status::kNothing, .frame = {}, .rest = {}};
  }
  if ((message.msg_flags & MSG_TRUNC) != 0)
    return {.status = Status::kTooLong, .frame = {}, .rest = {}};
  Received received;
  auto bytes = static_cast<std::size_t>(size) - std::min<std::size_t>(size, sizeof preface);
  if (bytes < kAddresses) return {.status = Status::kUnfit, .frame = {}, .rest = {}};
  std::size_t begin = kTag;
  if (const auto tag = tag_of(message)) {
    std::memmove(room.data(), room.data() + kTag, kAddresses);
    util::store_be16(room.data() + kAddresses, tag->type);
    util::store_be16(room.data() + kAddresses + sizeof tag->type, tag->control);
    begin = 0;
    bytes += kTag;
  }
  received.frame = room.subspan(begin, bytes);
  received.status = read(preface, kTag - begin, received.rest) ? Status::kFrame : Status::kUnfit;
  return received;
}

/// The kernel's counter begins again when it is read.
std::uint64_t PacketSocket::lost() {
  tpacket_stats stats{};
  socklen_t size = sizeof stats;
  if (::getsockopt(fd_.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0) {
    lost_ += stats.tp_drops;
  }
  return lost_;
}

}  // namespace softhca::os
