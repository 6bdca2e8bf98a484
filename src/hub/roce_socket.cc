#include "hub/roce_socket.h"

#include <fmt/format.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hub/udp_address.h"
#include "os/kept_fd.h"
#include "os/memory_faults.h"
#include "wire/address_text.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

/// Received datagrams that the fabric may still refer to.
constexpr std::size_t kSlots = 256;
/// Longer than any packet, so that a longer datagram shows.
constexpr std::size_t kSlotSize = wire::DatagramReader::kDatagramMax + 64;
/// Errors that one call takes from the queue: hostile peers can fill it as fast as it is drained.
constexpr std::size_t kErrorsMax = 1024;
/// Receives without a packet before the queue of errors is looked at without a reason.
constexpr std::uint32_t kEmptyPerLook = 64;
/// Two messages of an int.
constexpr std::size_t kControlSize = 2 * CMSG_SPACE(sizeof(int));
/// An error, the address of its sender, and what comes with received packets.
constexpr std::size_t kErrorControlSize =
    kControlSize + CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6));
/// Bytes of the kernel's buffers, where it allows that many: a peer's window of packets.
constexpr int kBuffer = 8 << 20;

// <linux/udp.h> and <linux/in6.h> define these, but conflict with headers of libc.
constexpr int kNoCheck6Tx = 101, kNoCheck6Rx = 102, kFreebind6 = 78;

bool set(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

int get(int fd, int level, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, level, option, &value, &size) == 0 ? value : 0;
}

/// A privileged process may exceed the system's limit.
void set_buffer(int fd, int forced, int option) {
  if (!set(fd, SOL_SOCKET, forced, kBuffer)) (void)set(fd, SOL_SOCKET, option, kBuffer);
}

/// IBTA Annex A17 17.3.1: packets are never fragmented, and the UDP checksum is 0, since the ICRC
/// covers more.
bool set_options(int fd, bool is_ipv4) {
  set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
  set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF);
  if (is_ipv4) {
    return set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
           set(fd, IPPROTO_IP, IP_RECVERR, 1) && set(fd, IPPROTO_IP, IP_RECVTOS, 1) &&
           set(fd, IPPROTO_IP, IP_RECVTTL, 1) && set(fd, SOL_SOCKET, SO_NO_CHECK, 1);
  }
  return set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
         set(fd, IPPROTO_IPV6, IPV6_RECVERR, 1) && set(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1) &&
         set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) && set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1) &&
         set(fd, IPPROTO_UDP, kNoCheck6Tx, 1) && set(fd, IPPROTO_UDP, kNoCheck6Rx, 1);
}

void put_control(cmsghdr& message, int level, int type, int value) {
  message.cmsg_level = level;
  message.cmsg_type = type;
  message.cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(&message), &value, sizeof value);
}

}  // namespace

/// Received datagrams: slots in a ring, of which those between `tail` and `head` are in use.
struct RoceSocket::Arrivals {
  std::array<mmsghdr, kBatch> messages{};
  std::array<iovec, kBatch> parts{};
  std::array<UdpAddress, kBatch> sources{};
  alignas(cmsghdr) std::array<std::array<std::byte, kControlSize>, kBatch> controls{};
  std::array<std::array<std::byte, kSlotSize>, kSlots> slots;
  std::array<std::uint64_t, kSlots> numbers{};  ///< of the frames that refer to the slots
  std::size_t head = 0;
  std::size_t tail = 0;
};

struct RoceSocket::Departures {
  std::array<mmsghdr, kSendMax> messages{};
  std::array<std::array<iovec, wire::RoceDatagram::kPiecesMax>, kSendMax> parts{};
  std::array<UdpAddress, kSendMax> destinations{};
  alignas(cmsghdr) std::array<std::array<std::byte, kControlSize>, kSendMax> controls{};
};

RoceSocket::RoceSocket(os::UniqueFd socket, const wire::Gid& address)
    : socket_(std::move(socket)),
      address_(address),
      send_buffer_(static_cast<std::size_t>(get(socket_.get(), SOL_SOCKET, SO_SNDBUF))),
      arrivals_(std::make_unique_for_overwrite<Arrivals>()),
      departures_(std::make_unique<Departures>()) {
  arrivals_->head = arrivals_->tail = 0;
}

RoceSocket::~RoceSocket() = default;

util::Result<std::unique_ptr<RoceSocket>> RoceSocket::open(const wire::Gid& address) {
  const auto family = address.is_ipv4() ? AF_INET : AF_INET6;
  os::UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return util::fail_errno("no UDP socket");
  if (family == AF_INET6) {
    (void)set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    // Duplicate address detection may still be under way.
    (void)set(socket.get(), IPPROTO_IPV6, kFreebind6, 1);
  }
  const auto own = UdpAddress::of(address, wire::kRoceUdpPort);
  if (::bind(socket.get(), &own.any, own.size()) != 0) {
    if (errno == EADDRINUSE) {
      return util::fail(
          fmt::format("UDP port {} of {} is taken, perhaps by soft-RoCE (rdma_rxe) or by a program "
                      "of another softhca network: other machines cannot be reached",
                      wire::kRoceUdpPort, text_of(address)));
    }
    return util::fail_errno(fmt::format("UDP port {} of {}", wire::kRoceUdpPort, text_of(address)));
  }
  return adopt(std::move(socket), address);
}

util::Result<std::unique_ptr<RoceSocket>> RoceSocket::adopt(os::UniqueFd socket,
                                                            const wire::Gid& address) {
  if (!set_options(socket.get(), address.is_ipv4())) {
    return util::fail_errno(fmt::format("options of the UDP socket of {}", text_of(address)));
  }
  return std::unique_ptr<RoceSocket>(new RoceSocket(os::keep(std::move(socket)), address));
}

// Sending ----------------------------------------------------------------------------------------

void RoceSocket::note_error(int error) {
  auto& lost = counters_.lost;
  switch (error) {
    case EMSGSIZE:
      ++lost.too_long;
      return;
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
      ++lost.no_room;
      return;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
      ++lost.unreachable;
      return;
    case ECONNREFUSED:
    case EPERM:
    case EACCES:
      ++lost.refused;
      return;
    case EFAULT:
      ++lost.fault;
      return;
    default:
      ++lost.other;
  }
}

void RoceSocket::send(std::span<const wire::RoceDatagram> packets) {
  // A fault on memory means that the packets' bytes may be wrong, or that they acknowledge data
  // that did not arrive.
  if (os::MemoryFaults::pending()) {
    counters_.lost.fault += packets.size();
    return;
  }
  auto& all = *departures_;
  const bool is_ipv4 = address_.is_ipv4();
  for (std::size_t i = 0; i != packets.size(); ++i) {
    const auto& packet = packets[i];
    auto& to = all.destinations[i] = UdpAddress::of(packet.path.destination, wire::kRoceUdpPort);
    std::size_t count = 0;
    for (const auto piece : packet.pieces()) {
      all.parts[i][count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    }
    auto& header = all.messages[i].msg_hdr;
    header = {.msg_name = &to.any,
              .msg_namelen = to.size(),
              .msg_iov = all.parts[i].data(),
              .msg_iovlen = count,
              .msg_control = all.controls[i].data(),
              .msg_controllen = kControlSize,
              .msg_flags = 0};
    auto* const first = CMSG_FIRSTHDR(&header);
    put_control(*first, is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, is_ipv4 ? IP_TOS : IPV6_TCLASS,
                packet.path.traffic_class);
    // The kernel refuses a TTL of 0, which reaches no other host.
    auto* const second = reinterpret_cast<cmsghdr*>(all.controls[i].data() + kControlSize / 2);
    put_control(*second, is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, is_ipv4 ? IP_TTL : IPV6_HOPLIMIT,
                std::max<int>(packet.path.hop_limit, 1));
  }
  std::size_t errors = kErrorsMax;
  for (std::size_t done = 0; done != packets.size();) {
    const auto left = static_cast<unsigned>(packets.size() - done);
    const int sent = ::sendmmsg(socket_.get(), &all.messages[done], left, MSG_DONTWAIT);
    if (sent > 0) {
      counters_.sent += static_cast<unsigned>(sent);
      done += static_cast<unsigned>(sent);
      // The kernel has dropped the error that stopped it, but not that error's entry in the queue.
      errors_left_ |= done != packets.size();
    } else if (const int error = errno; !take_errors(errors)) {
      note_error(error);
      ++done;
    }
  }
}

/// Takes at most `most` errors from the queue (IP_RECVERR), and subtracts them. The queue makes
/// poll() return, and its entries fill the receive buffer. True if ICMP or the neighbor table has
/// reported one: the call that failed did so because of an earlier packet.
bool RoceSocket::take_errors(std::size_t& most) {
  bool any = false;
  for (errors_left_ = true; most != 0; --most) {
    UdpAddress to{};
    alignas(cmsghdr) std::array<std::byte, kErrorControlSize> control{};
    msghdr header{.msg_name = &to.any,
                  .msg_namelen = sizeof to,
                  .msg_iov = nullptr,
                  .msg_iovlen = 0,
                  .msg_control = control.data(),
                  .msg_controllen = control.size(),
                  .msg_flags = 0};
    if (::recvmsg(socket_.get(), &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      errors_left_ = false;
      break;
    }
    for (auto* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
      const bool is_error = (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_RECVERR) ||
                            (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_RECVERR);
      if (!is_error) continue;
      sock_extended_err error{};
      std::memcpy(&error, CMSG_DATA(at), sizeof error);
      if (error.ee_origin == SO_EE_ORIGIN_LOCAL) continue;  // the send has failed
      any = true;
      note_error(static_cast<int>(error.ee_errno));
      complaint_ = {to.gid(), static_cast<int>(error.ee_errno)};
    }
  }
  return any;
}

std::size_t RoceSocket::room() {
  int queued = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &queued) != 0) return SIZE_MAX;
  const auto before = std::exchange(queued_, static_cast<std::size_t>(queued));
  if (before > queued_) drained_ += before - queued_;
  return send_buffer_ - std::min(send_buffer_, queued_);
}

// Receiving --------------------------------------------------------------------------------------

/// Takes datagrams from the kernel into free slots that follow each other.
RoceSocket::Batch RoceSocket::take(std::size_t most) {
  auto& all = *arrivals_;
  const auto in_use = all.head - all.tail;
  const auto first = all.head % kSlots;
  const auto count = std::min({most, kBatch, kSlots - in_use, kSlots - first});
  for (std::size_t i = 0; i != count; ++i) {
    all.parts[i] = {all.slots[first + i].data(), kSlotSize};
    all.messages[i].msg_hdr = {.msg_name = &all.sources[i].any,
                               .msg_namelen = sizeof all.sources[i],
                               .msg_iov = &all.parts[i],
                               .msg_iovlen = 1,
                               .msg_control = all.controls[i].data(),
                               .msg_controllen = kControlSize,
                               .msg_flags = 0};
  }
  if (count == 0) return {};
  const int taken = ::recvmmsg(socket_.get(), all.messages.data(), static_cast<unsigned>(count),
                               MSG_DONTWAIT, nullptr);
  if (errors_left_ || (taken < 0 && (errno != EAGAIN || ++empty_ % kEmptyPerLook == 0))) {
    auto errors = kErrorsMax;
    (void)take_errors(errors);
  }
  const auto done = taken > 0 ? static_cast<std::size_t>(taken) : 0;
  const Batch batch{.first = first, .count = done, .is_full = done == count};
  all.head += batch.count;
  return batch;
}

/// Makes a frame of the datagram in a slot, which was number `index` of its batch.
bool RoceSocket::read(std::size_t slot, std::size_t index, wire::DatagramReader& reader,
                      wire::DatagramPath& path, wire::Frame& frame) {
  auto& all = *arrivals_;
  auto& message = all.messages[index];
  auto& header = message.msg_hdr;
  if (all.sources[index].any.sa_family != (address_.is_ipv4() ? AF_INET : AF_INET6)) {
    ++counters_.lost.malformed;
    return false;
  }
  path.source = all.sources[index].gid();
  path.source_port = all.sources[index].port();
  path.destination = address_;
  for (auto* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
    // IP_TOS is a byte, the others are ints.
    const bool is_tos = at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS;
    int value = 0;
    std::memcpy(&value, CMSG_DATA(at), is_tos ? 1 : sizeof value);
    if (is_tos || (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS)) {
      path.traffic_class = static_cast<std::uint8_t>(value);
    } else {
      path.hop_limit = static_cast<std::uint8_t>(value);
    }
  }
  const auto made = reader.read(std::span(all.slots[slot]).first(message.msg_len), path, frame);
  if (made) {
    ++counters_.received;
  } else {
    const bool is_corrupt = made.error() == wire::DatagramError::kIcrc;
    ++(is_corrupt ? counters_.lost.corrupt : counters_.lost.malformed);
  }
  return made.has_value();
}

void RoceSocket::note_number(std::size_t slot) { arrivals_->numbers[slot] = last_number_; }

void RoceSocket::give_back(std::uint64_t released) {
  auto& all = *arrivals_;
  while (all.tail != all.head && all.numbers[all.tail % kSlots] <= released) ++all.tail;
}

}  // namespace softhca::hub
