#include "ethernet/segmentation.h"

#include <algorithm>
#include <cstring>

#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/udp.h"

namespace softhca::ethernet {

tl::expected<Segmenter, SegmentationError> Segmenter::create(std::span<const std::byte> headers,
                                                             std::size_t payload_size,
                                                             std::size_t mss) {
  using Error = SegmentationError;
  if (headers.size() > wire::Frame::kHeadCapacity) return tl::unexpected(Error::kHeaderTooLong);
  const auto info = classify_template(headers);
  if (info.l4 == L4Type::kNone) return tl::unexpected(Error::kNotTcpOrUdp);
  if (std::size_t{info.l4_offset} + info.l4_header_size != headers.size()) {
    return tl::unexpected(Error::kHeaderEndsElsewhere);
  }
  if (mss == 0 || headers.size() - info.l3_offset + std::min(mss, payload_size) > 0xffff) {
    return tl::unexpected(Error::kMss);
  }
  Segmenter segmenter;
  std::memcpy(segmenter.headers_.data(), headers.data(), headers.size());
  segmenter.headers_size_ = headers.size();
  segmenter.info_ = info;
  segmenter.payload_size_ = payload_size;
  segmenter.mss_ = mss;
  return segmenter;
}

std::size_t Segmenter::count() const {
  return std::max<std::size_t>(payload_size_ / mss_ + (payload_size_ % mss_ != 0), 1);
}

Segmenter::Part Segmenter::next(wire::Frame& frame) {
  assert(!done_);
  const Part part{offset_, std::min(mss_, payload_size_ - offset_)};
  const bool first = offset_ == 0;
  const bool last = part.offset + part.size == payload_size_;
  frame.clear();
  const auto head = frame.resize_head(headers_size_);
  std::memcpy(head.data(), headers_.data(), headers_size_);
  update_l3(head.subspan(info_.l3_offset), part.size);
  const auto l4 = head.subspan(info_.l4_offset);
  if (info_.l4 == L4Type::kTcp) {
    update_tcp(l4, first, last);
  } else {
    using L = wire::UdpLayout;
    util::MutableView<L>(l4).set(L::length, static_cast<std::uint32_t>(L::kSize + part.size));
  }
  offset_ += part.size;
  ++index_;
  done_ = last;
  return part;
}

void advance_headers(std::span<std::byte> headers, const PacketInfo& packet, unsigned count,
                     std::size_t payload) {
  if (packet.l3 == L3Type::kIpv4) {
    using L = wire::Ipv4Layout;
    const util::MutableView<L> ip(headers.subspan(packet.l3_offset));
    ip.set(L::identification, (ip.get(L::identification) + count) & L::identification.kMax);
  }
  if (packet.l4 != L4Type::kTcp) return;
  using L = wire::TcpLayout;
  const util::MutableView<L> tcp(headers.subspan(packet.l4_offset));
  tcp.set(L::sequence, tcp.get(L::sequence) + static_cast<std::uint32_t>(count * payload));
  tcp.set(L::cwr, 0);
}

void Segmenter::update_l3(std::span<std::byte> head, std::size_t payload) const {
  const auto size = static_cast<std::uint32_t>(head.size() + payload);
  if (info_.l3 == L3Type::kIpv4) {
    using L = wire::Ipv4Layout;
    const util::MutableView<L> ip(head);
    ip.set(L::total_length, size);
    // RFC 791 3.2: each packet of a source needs its own identification.
    ip.set(L::identification, (ip.get(L::identification) + index_) & L::identification.kMax);
  } else {
    using L = wire::Ipv6Layout;
    util::MutableView<L>(head).set(L::payload_length, size - static_cast<std::uint32_t>(L::kSize));
  }
}

void Segmenter::update_tcp(std::span<std::byte> tcp, bool first, bool last) const {
  using L = wire::TcpLayout;
  const util::MutableView<L> view(tcp);
  view.set(L::sequence, view.get(L::sequence) + static_cast<std::uint32_t>(offset_));
  // Flags that refer to the message's end belong only in the last packet.
  if (!last) {
    view.set(L::psh, 0);
    view.set(L::fin, 0);
  }
  // RFC 3168 6.1.2: CWR is set in the first packet after the window was reduced.
  if (!first) view.set(L::cwr, 0);
}

}  // namespace softhca::ethernet
