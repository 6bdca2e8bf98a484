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

/// Received messages that the fabric may still refer to.
constexpr std::size_t kSlots = 64;
/// Longer than any message. The kernel touches only as much of a slot as it fills.
constexpr std::size_t kSlotSize = std::size_t{64} << 10;
/// Packets that one call takes from the kernel, as far as the last messages let expect.
constexpr std::size_t kPacketsPerCall = 64;
/// Messages of a call after one that took none: a program that polls makes many of these.
constexpr std::size_t kWhileQuiet = 4;
/// Errors that one call takes from the queue: hostile peers can fill it as fast as it is drained.
constexpr std::size_t kErrorsMax = 1024;
/// Receives without a packet before the queue of errors is looked at without a reason.
constexpr std::uint32_t kEmptyPerLook = 64;
/// Traffic class, hop limit, and the length of merged datagrams.
constexpr std::size_t kControlSize = 3 * CMSG_SPACE(sizeof(int));
/// An error, the address of its sender, and what comes with received packets.
constexpr std::size_t kErrorControlSize =
    kControlSize + CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6));
/// A message in the kernel's buffer takes less than this and twice its bytes.
constexpr std::size_t kMessageBytes = 2048;
/// Bytes of the kernel's buffers, where it allows that many: a peer's window of packets.
constexpr int kBuffer = 8 << 20;

// <linux/udp.h> and <linux/in6.h> define these, but conflict with headers of libc.
constexpr int kNoCheck6Tx = 101, kNoCheck6Rx = 102, kUdpGro = 104;

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
/// covers more. Programs of the own network get packets to groups by the hub.
bool set_options(int fd, bool is_ipv4) {
  set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
  set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF);
  if (is_ipv4) {
    return set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
           set(fd, IPPROTO_IP, IP_RECVERR, 1) && set(fd, IPPROTO_IP, IP_RECVTOS, 1) &&
           set(fd, IPPROTO_IP, IP_RECVTTL, 1) && set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 0) &&
           set(fd, SOL_SOCKET, SO_NO_CHECK, 1);
  }
  return set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
         set(fd, IPPROTO_IPV6, IPV6_RECVERR, 1) && set(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1) &&
         set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) && set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1) &&
         set(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0) && set(fd, IPPROTO_UDP, kNoCheck6Tx, 1) &&
         set(fd, IPPROTO_UDP, kNoCheck6Rx, 1);
}

/// Errors of a message with several packets that each of them alone may not have: the kernel, or a
/// device of the route, cuts no messages. Before Linux 6.14, EINVAL may also mean EMSGSIZE.
bool is_about_batches(int error) { return error == EINVAL || error == EIO || error == EMSGSIZE; }

}  // namespace

/// Received messages: slots in a ring, of which those between `tail` and `head` are in use.
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

RoceSocket::RoceSocket(os::UniqueFd socket, const wire::Gid& address)
    : socket_(std::move(socket)),
      address_(address),
      send_buffer_(static_cast<std::size_t>(get(socket_.get(), SOL_SOCKET, SO_SNDBUF))),
      arrivals_(std::make_unique_for_overwrite<Arrivals>()),
      departures_(std::make_unique<RoceDepartures>()) {
  arrivals_->head = arrivals_->tail = 0;
}

RoceSocket::~RoceSocket() = default;

void RoceSocket::set_merging(int socket, bool on) {
  (void)set(socket, IPPROTO_UDP, kUdpGro, on ? 1 : 0);
}

util::Result<std::unique_ptr<RoceSocket>> RoceSocket::adopt(os::UniqueFd socket,
                                                            const wire::Gid& address) {
  if (!set_options(socket.get(), address.is_ipv4())) {
    return util::fail_errno(fmt::format("options of the UDP socket of {}", text_of(address)));
  }
  return std::unique_ptr<RoceSocket>(new RoceSocket(os::keep(std::move(socket)), address));
}

void RoceSocket::set_group_interface(unsigned interface) {
  if (address_.is_ipv4()) {
    ip_mreqn by{};
    by.imr_ifindex = static_cast<int>(interface);
    (void)::setsockopt(socket_.get(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
  } else {
    (void)set(socket_.get(), IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface));
  }
}

// Sending ----------------------------------------------------------------------------------------

/// Counts `packets` that were lost by an error.
void RoceSocket::note_error(int error, std::size_t packets) {
  auto& lost = counters_.lost;
  switch (error) {
    case EMSGSIZE:
      lost.too_long += packets;
      return;
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
      lost.no_room += packets;
      return;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
      lost.unreachable += packets;
      return;
    case ECONNREFUSED:
    case EPERM:
    case EACCES:
      lost.refused += packets;
      return;
    case EFAULT:
      lost.fault += packets;
      return;
    default:
      lost.other += packets;
  }
}

/// Sends messages from number `at` on. Returns sendmmsg()'s result.
int RoceSocket::send_messages(std::size_t at) {
  const auto messages = departures_->from(at);
  // The kernel cuts no messages without checksums. The ICRC does not cover it. Where datagrams are
  // merged (UDP_GRO), one without a checksum would overtake those with one, so those behind a batch
  // have one, too. Messages to QP1 never: one that is merged with a packet would take it along to
  // the hub.
  const bool sums = departures_->has_batch() || (batched_ && !departures_->begins_with_gsi());
  batched_ = batched_ || sums;
  if (sums != sums_) set_checksums(sums);
  return ::sendmmsg(socket_.get(), messages.data(), static_cast<unsigned>(messages.size()),
                    MSG_DONTWAIT);
}

void RoceSocket::set_checksums(bool on) {
  sums_ = on;
  if (address_.is_ipv4()) {
    (void)set(socket_.get(), SOL_SOCKET, SO_NO_CHECK, on ? 0 : 1);
  } else {
    (void)set(socket_.get(), IPPROTO_UDP, kNoCheck6Tx, on ? 0 : 1);
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
  all.make(packets, batches_);
  std::size_t errors = kErrorsMax;
  bool refused = false;  // a batch was, but no packet of it for its length
  for (std::size_t at = 0; at != all.count();) {
    if (const int sent = send_messages(at); sent > 0) {
      const auto done = at + static_cast<unsigned>(sent);
      counters_.sent += all.first(done) - all.first(at);
      counters_.messages += done - at;
      for (; at != done; ++at) unseen_ += all.bytes(at) * 2 + kMessageBytes;
      // The kernel has dropped the error that stopped it, but not that error's entry in the queue.
      errors_left_ |= at != all.count();
    } else if (const int error = errno; !take_errors(errors)) {
      if (all.packets(at) != 1 && is_about_batches(error)) {
        refused = error != EMSGSIZE;
        packets = packets.subspan(all.first(at));
        all.make(packets, false);
        at = 0;
        continue;
      }
      refused = refused && error != EMSGSIZE;
      note_error(error, all.packets(at));
      ++at;
    }
  }
  if (refused) batches_ = false;
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
      note_error(static_cast<int>(error.ee_errno), 1);
      complaint_ = {to.gid(), static_cast<int>(error.ee_errno)};
    }
  }
  return any;
}

std::size_t RoceSocket::room() {
  // Not worth a call of the kernel while the buffer cannot be full.
  if (queued_ + unseen_ < send_buffer_ / 2) return send_buffer_ - queued_ - unseen_;
  unseen_ = 0;
  int queued = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &queued) != 0) return SIZE_MAX;
  const auto before = std::exchange(queued_, static_cast<std::size_t>(queued));
  if (before > queued_) drained_ += before - queued_;
  return send_buffer_ - std::min(send_buffer_, queued_);
}

// Receiving --------------------------------------------------------------------------------------

/// Takes messages from the kernel into free slots that follow each other.
RoceSocket::Batch RoceSocket::take(std::size_t most) {
  auto& all = *arrivals_;
  // Again the same memory, which is in the cache.
  if (all.head == all.tail) all.head = all.tail = 0;
  const auto in_use = all.head - all.tail;
  const auto first = all.head % kSlots;
  const auto wanted =
      is_quiet_ ? kWhileQuiet : std::min(most, kPacketsPerCall) / packets_per_message_;
  const auto count =
      std::min({std::max(wanted, std::size_t{1}), kBatch, kSlots - in_use, kSlots - first});
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
  is_quiet_ = done == 0;
  // Forgotten slowly: after one short message, many long ones may come.
  if (done != 0) packets_per_message_ = std::max(packets_per_message_ / 2, std::size_t{1});
  return batch;
}

/// Reads the addresses and control messages of the message in a slot, which was number `index` of
/// its batch.
RoceSocket::Arrival RoceSocket::arrive(std::size_t slot, std::size_t index) {
  auto& all = *arrivals_;
  auto& message = all.messages[index];
  auto& header = message.msg_hdr;
  Arrival arrival{.is_ours = all.sources[index].any.sa_family ==
                             (address_.is_ipv4() ? AF_INET : AF_INET6)};
  auto& path = arrival.path;
  if (arrival.is_ours) {
    path.source = all.sources[index].gid();
    path.source_port = all.sources[index].port();
    arrival.is_own = std::ranges::find(own_, path.source) != own_.end();
  }
  path.destination = address_;
  std::size_t part = 0;
  for (auto* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
    // IP_TOS is a byte, the others are ints.
    const bool is_tos = at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS;
    int value = 0;
    std::memcpy(&value, CMSG_DATA(at), is_tos ? 1 : sizeof value);
    if (is_tos || (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS)) {
      path.traffic_class = static_cast<std::uint8_t>(value);
    } else if (at->cmsg_level == IPPROTO_UDP && at->cmsg_type == kUdpGro) {
      part = static_cast<std::size_t>(std::max(value, 0));
    } else {
      path.hop_limit = static_cast<std::uint8_t>(value);
    }
  }
  // Without the option, the kernel says nothing of what it has merged before (set_merging).
  const std::size_t size = message.msg_len;
  if (part != 0) last_part_ = part;
  if (part == 0 && size > wire::DatagramReader::kDatagramMax) part = last_part_;
  arrival.datagrams = {std::span(all.slots[slot]).first(size), part};
  arrival.count = arrival.datagrams.count();
  packets_per_message_ = std::max(packets_per_message_, arrival.count);
  return arrival;
}

/// Makes a frame of the next datagram of a message.
bool RoceSocket::read(Arrival& arrival, wire::DatagramReader& reader, wire::Frame& frame) {
  const auto datagram = arrival.datagrams.take();
  if (!arrival.is_ours || arrival.is_own) {
    ++(arrival.is_own ? counters_.lost.own : counters_.lost.malformed);
    return false;
  }
  const auto made = reader.read(datagram, arrival.path, frame);
  ++arrival.path.identification;
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
