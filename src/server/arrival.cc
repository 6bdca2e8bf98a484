#include "server/arrival.h"

#include <algorithm>

#include "ethernet/checksum_offload.h"
#include "ethernet/packet_info.h"
#include "ethernet/segmentation.h"
#include "util/endian.h"
#include "wire/checksum.h"
#include "wire/frame.h"

namespace softhca::server {
namespace {

/// False: the field is outside the frame.
bool complete_checksum(std::span<std::byte> frame, const os::FrameFile::Rest& rest) {
  const auto at = std::size_t{rest.start} + rest.offset;
  if (rest.start >= frame.size() || at + sizeof(std::uint16_t) > frame.size()) return false;
  const auto checksum = wire::checksum_of(frame.subspan(rest.start));
  // RFC 768: "If the computed checksum is zero, it is transmitted as all ones". TCP allows both.
  util::store_be16(frame.data() + at, checksum == 0 ? 0xffff : checksum);
  return true;
}

Arrival transmit_packet(std::span<const std::byte> bytes, fabric::Port& port) {
  auto& frame = port.draft();
  frame.clear();
  const auto head = std::min(bytes.size(), wire::Frame::kHeadCapacity);
  std::ranges::copy(bytes.first(head), frame.resize_head(head).begin());
  (void)frame.add_segment(bytes.subspan(head));
  return {.packets = 1, .number = port.transmit(frame)};
}

Arrival transmit_packets(std::span<const std::byte> merged, const os::FrameFile::Rest& rest,
                         fabric::Port& port) {
  const auto whole = ethernet::classify(wire::Frame::from_bytes(merged));
  // Packets of a tunnel may be merged by their inner headers.
  const auto wanted = rest.tcp ? ethernet::L4Type::kTcp : ethernet::L4Type::kUdp;
  if (whole.l4 != wanted || !whole.l3_length_ok) return {};
  const auto headers = merged.first(std::size_t{whole.l4_offset} + whole.l4_header_size);
  const auto payload = merged.first(whole.l3_offset + whole.l3_size).subspan(headers.size());
  auto segmenter = ethernet::Segmenter::create(headers, payload.size(), rest.segment);
  if (!segmenter || segmenter->count() > kMergedMax) return {};
  Arrival arrival;
  while (!segmenter->done()) {
    auto& frame = port.draft();
    const auto part = segmenter->next(frame);
    (void)frame.add_segment(payload.subspan(part.offset, part.size));
    const auto packet = ethernet::classify(frame);
    ethernet::insert_l3_checksum(frame, packet);
    ethernet::insert_l4_checksum(frame, packet);
    arrival.number = port.transmit(frame);
    ++arrival.packets;
  }
  return arrival;
}

}  // namespace

Arrival transmit_arrival(std::span<std::byte> frame, const os::FrameFile::Rest& rest,
                         fabric::Port& port) {
  if (rest.segment != 0) return transmit_packets(frame, rest, port);
  if (rest.checksum && !complete_checksum(frame, rest)) return {};
  return transmit_packet(frame, port);
}

}  // namespace softhca::server
