#include "hub/roce_departures.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/bth.h"
#include "wire/ib_header.h"

namespace softhca::hub {
namespace {

constexpr std::size_t kSpace = CMSG_SPACE(sizeof(int));
// <linux/udp.h> and the header of libc conflict, and old ones of libc lack it.
constexpr int kUdpSegment = 103;

template <class T>
void put_control(std::byte* at, int level, int type, T value) {
  static_assert(CMSG_SPACE(sizeof value) == kSpace);
  const cmsghdr header{.cmsg_len = CMSG_LEN(sizeof value), .cmsg_level = level, .cmsg_type = type};
  std::memcpy(at, &header, sizeof header);
  std::memcpy(at + CMSG_LEN(0), &value, sizeof value);
}

/// The BTH is at the beginning of the first piece.
bool is_for_gsi(const wire::RoceDatagram& packet) {
  const auto head = packet.pieces().front();
  return head.size() >= wire::BthLayout::kSize &&
         wire::Bth::parse(wire::BthView(head)).dest_qp == wire::kGsiQpn;
}

}  // namespace

/// Begins a message to the packet's destination.
void RoceDepartures::begin(const wire::RoceDatagram& packet, std::size_t first) {
  const auto& path = packet.path;
  const bool is_ipv4 = path.destination.is_ipv4();
  firsts_[count_] = first;
  bytes_[count_] = 0;
  auto& to = destinations_[count_] = UdpAddress::of(path.destination, wire::kRoceUdpPort);
  auto* const control = controls_[count_].data();
  const int level = is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  put_control<int>(control, level, is_ipv4 ? IP_TOS : IPV6_TCLASS, path.traffic_class);
  // The kernel refuses a TTL of 0, which reaches no other host.
  put_control<int>(control + kSpace, level, is_ipv4 ? IP_TTL : IPV6_HOPLIMIT,
                   std::max<int>(path.hop_limit, 1));
  headers_[count_].msg_hdr = {.msg_name = &to.any,
                              .msg_namelen = to.size(),
                              .msg_iov = &all_pieces_[pieces_],
                              .msg_iovlen = 0,
                              .msg_control = control,
                              .msg_controllen = 2 * kSpace,
                              .msg_flags = 0};
}

void RoceDepartures::add(const wire::RoceDatagram& packet) {
  for (const auto piece : packet.pieces()) {
    all_pieces_[pieces_++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  headers_[count_].msg_hdr.msg_iovlen += packet.part_count;
  bytes_[count_] += packet.size;
}

/// Ends the message before packet number `end`.
void RoceDepartures::end(const wire::RoceDatagram& first, std::size_t end) {
  auto& header = headers_[count_].msg_hdr;
  if (end - firsts_[count_] > 1) {
    put_control(controls_[count_].data() + 2 * kSpace, IPPROTO_UDP, kUdpSegment,
                static_cast<std::uint16_t>(first.size));
    header.msg_controllen = 3 * kSpace;
  } else if (first.path.identification != 0) {
    auto& icrc = icrcs_[firsts_[count_]] = first.icrc_alone();
    all_pieces_[pieces_ - 1] = {icrc.data(), icrc.size()};
  }
  firsts_[++count_] = end;
}

void RoceDepartures::make(std::span<const wire::RoceDatagram> packets, bool batches) {
  assert(packets.size() <= kPacketsMax);
  count_ = pieces_ = firsts_[0] = 0;
  begins_with_gsi_ = !packets.empty() && is_for_gsi(packets.front());
  for (std::size_t i = 0; i != packets.size();) {
    const auto& first = packets[i];
    begin(first, i);
    const auto begun = i;
    do {
      add(packets[i]);
      ++i;
    } while (batches && i != packets.size() && first.path.identification == 0 &&
             packets[i].path.identification == i - begun && packets[i].size == first.size);
    end(first, i);
  }
}

}  // namespace softhca::hub
