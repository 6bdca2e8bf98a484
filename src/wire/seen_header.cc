#include "wire/seen_header.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/icrc.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/lrh.h"
#include "wire/udp.h"
#include "wire/vcrc.h"

namespace softhca::wire {
namespace {

/// Zero in the fields of these headers that hold a length, or a checksum over one.
void open_lengths(std::span<std::byte> mask, const IbAddress& address, std::size_t network) {
  const auto at = mask.subspan(network);
  const auto open_udp = [](std::span<std::byte> udp) {
    util::MutableView<UdpLayout>(udp).set(UdpLayout::length, 0);
  };
  if (!address.is_ethernet()) {
    util::MutableView<LrhLayout>(mask).set(LrhLayout::packet_length, 0);
  }
  if (address.encapsulation == Encapsulation::kLocal) return;
  if (address.encapsulation != Encapsulation::kRoceV2) {
    util::MutableView<GrhLayout>(at).set(GrhLayout::payload_length, 0);
  } else if (address.is_ipv4()) {
    const util::MutableView<Ipv4Layout> ip(at);
    ip.set(Ipv4Layout::total_length, 0);
    ip.set(Ipv4Layout::checksum, 0);
    open_udp(at.subspan(Ipv4Layout::kSize));
  } else {
    util::MutableView<Ipv6Layout>(at).set(Ipv6Layout::payload_length, 0);
    open_udp(at.subspan(Ipv6Layout::kSize));
  }
}

}  // namespace

void SeenHeader::remember(const Frame& frame, const IbPacket& packet) {
  forget();
  const auto size = frame.transport_offset();
  if (size == 0 || frame.icrc() != Frame::Icrc::kDeferred) return;
  assert(size <= sizeof bytes_ && size <= frame.head().size());
  bytes_.fill(0);
  mask_.fill(0);
  std::memcpy(bytes_.data(), frame.head().data(), size);
  const auto mask = std::as_writable_bytes(std::span(mask_));
  std::ranges::fill(mask.first(size), std::byte{0xff});
  open_lengths(mask, packet.address, packet.network_offset);
  packet_ = packet;
  link_ = frame.link();
  trailer_ = link_ == Link::kInfiniband ? kVcrcSize : 0;
  size_ = static_cast<std::uint8_t>(size);
  keep_bth(frame);
}

/// Behind the headers, where matches() does not look.
inline void SeenHeader::keep_bth(const Frame& frame) {
  if (size_ + kBthStart > sizeof bytes_) return;
  std::memcpy(std::as_writable_bytes(std::span(bytes_)).data() + size_, frame.head().data() + size_,
              kBthStart);
}

/// Whether the BTH is that of the packet before but for AckReq and PSN, as it is for most packets.
inline bool SeenHeader::same_bth(const Frame& frame) const {
  if (size_ + kBthStart > sizeof bytes_) return false;
  return std::memcmp(std::as_bytes(std::span(bytes_)).data() + size_,
                     frame.head_room().data() + size_, kBthStart) == 0;
}

/// The packet after one with the same BTH: what may differ. False if all of it must be looked at.
inline bool SeenHeader::parse_next(const Frame& frame, std::size_t end) {
  const auto head = frame.head();
  const auto begin = size_ + BthLayout::kSize;
  const auto& info = packet_.info();
  const auto offset = begin + info.headers_size;
  if (offset > head.size() || offset + packet_.bth.pad_count + kIcrcSize > end) return false;
  constexpr ExtHeaderSet kNone;
  if (info.headers == kNone.with(ExtHeader::kReth)) {
    packet_.ext.reth = Reth::parse(util::View<RethLayout>(head.subspan(begin)));
  } else if (info.headers == kNone.with(ExtHeader::kAeth)) {
    packet_.ext.aeth = Aeth::parse(util::View<AethLayout>(head.subspan(begin)));
  } else if (info.headers != kNone) {
    return false;
  }
  const BthView bth(head.subspan(size_));
  packet_.bth.ack_req = bth.get(BthLayout::ack_req) != 0;
  packet_.bth.psn = Psn(bth.get(BthLayout::psn));
  packet_.payload_size =
      static_cast<std::uint16_t>(end - kIcrcSize - packet_.bth.pad_count - offset);
  return true;
}

const IbPacket* SeenHeader::parse(const Frame& frame) {
  const auto end = frame.size() - trailer_;
  if (same_bth(frame) && parse_next(frame, end)) return &packet_;
  if (packet_.parse_transport(frame, size_, end)) {
    forget();  // there is no packet any more that the next one could be compared with
    return nullptr;
  }
  keep_bth(frame);
  return &packet_;
}

}  // namespace softhca::wire
