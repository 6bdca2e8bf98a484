// Any bytes as a frame from the wire, through every parser; and as headers to be segmented.
//
// Besides the sanitizers' checks: what parses emits to a packet that parses to the same, inserted
// checksums are right, and segments add up to the message.
#include <cstdint>
#include <span>
#include <vector>

#include "ethernet/checksum_offload.h"
#include "ethernet/packet_info.h"
#include "ethernet/padding.h"
#include "ethernet/rss.h"
#include "ethernet/segmentation.h"
#include "ethernet/vlan_offload.h"
#include "oracle.h"
#include "wire/ib_header.h"

namespace {

using namespace softhca;

using fuzz::check;

std::vector<std::byte> bytes_of(const wire::Frame& frame) {
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  return bytes;
}

/// Emits the packet's headers around its payload again, and parses the result.
void check_emit(const wire::Frame& frame, const wire::IbPacket& packet) {
  wire::Frame again;
  wire::IbHeader(packet.address).emit(packet.bth, packet.ext, packet.payload_size, again);
  const auto payload = again.own_payload(packet.payload_size);
  auto* at = payload.data();
  packet.for_each_payload_piece(frame, [&](std::span<const std::byte> piece) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  });
  const auto bytes = bytes_of(again);
  const auto parsed = wire::IbPacket::parse(wire::Frame::from_bytes(bytes, frame.link()));
  check(parsed.has_value());
  auto expected = packet.bth;
  expected.pad_count = static_cast<std::uint8_t>((4 - packet.payload_size % 4) % 4);
  check(parsed->address == packet.address && parsed->bth == expected);
  check(parsed->ext == packet.ext && parsed->payload_size == packet.payload_size);
}

/// The part of a frame that its own length covers. A fuzzer does not find the CRCs, so they are cut
/// off.
std::span<const std::byte> packet_part(std::span<const std::byte> bytes, wire::Link link) {
  if (link == wire::Link::kInfiniband) return bytes;
  const auto info = ethernet::classify(wire::Frame::from_bytes(bytes));
  if (info.l3 == ethernet::L3Type::kNone) return bytes;  // RoCEv1: the GRH holds the length
  return bytes.first(info.l3_offset + info.l3_size);
}

void fuzz_packet(std::span<const std::byte> bytes, wire::Link link) {
  auto frame = wire::Frame::from_bytes(bytes, link);
  auto packet = wire::IbPacket::parse(frame);
  using enum wire::PacketError;
  if (!packet && (packet.error() == kIcrc || packet.error() == kVcrc)) {
    // Treat it as a frame of this process, whose CRCs are not checked. The VCRC is checked first.
    const bool only_the_crc = packet.error() == kIcrc;
    frame = wire::Frame::from_bytes(packet_part(bytes, link), link);
    frame.set_icrc(wire::Frame::Icrc::kDeferred);
    packet = wire::IbPacket::parse(frame);
    check(packet.has_value() || !only_the_crc);
  }
  if (!packet) return;
  std::array<std::byte, 40> grh;
  check(wire::emit_ud_grh(frame, *packet, grh) == packet->address.is_global());
  check_emit(frame, *packet);
}

void fuzz_ethernet(std::span<const std::byte> bytes) {
  auto frame = wire::Frame::from_bytes(bytes);
  const auto info = ethernet::classify(frame);
  (void)ethernet::check(frame, info);
  for (const bool symmetric : {false, true}) {
    const ethernet::HashInput input(info, 15, symmetric);
    (void)ethernet::inverted_xor8(input.bytes(), 8);
  }
  ethernet::insert_l3_checksum(frame, info);
  ethernet::insert_l4_checksum(frame, info);
  const auto result = ethernet::check(frame, ethernet::classify(frame));
  if (info.l3 != ethernet::L3Type::kNone) check(result.l3_ok == info.l3_length_ok);
  // If the UDP length differs from IP's, software must check.
  if (info.l4 == ethernet::L4Type::kTcp) check(result.l4_ok == !info.ip.source_routed);

  const auto before = bytes_of(frame);
  if (ethernet::insert_vlan(frame, wire::EtherType::kVlan, 0x6123)) {
    auto tagged = bytes_of(frame);
    tagged.erase(tagged.begin() + 12, tagged.begin() + 16);
    check(tagged == before);
  }
  const auto size = frame.size();
  ethernet::pad_to_minimum(frame);
  check(frame.size() == std::max(size, ethernet::kFrameSizeMin));
}

/// The first byte is the header size, the next two the MSS.
void fuzz_segmentation(std::span<const std::byte> bytes) {
  if (bytes.size() < 3) return;
  const auto header_size = std::min(std::to_integer<std::size_t>(bytes[0]), bytes.size() - 3);
  const std::size_t mss = util::load_be16(&bytes[1]);
  const auto headers = bytes.subspan(3, header_size);
  const auto payload = bytes.subspan(3 + header_size);
  auto segmenter = ethernet::Segmenter::create(headers, payload.size(), mss);
  if (!segmenter) return;
  std::size_t sent = 0;
  for (std::size_t i = segmenter->count(); i != 0; --i) {
    check(!segmenter->done());
    wire::Frame frame;
    const auto part = segmenter->next(frame);
    check(part.offset == sent && part.size <= mss);
    check(frame.add_segment(payload.subspan(part.offset, part.size)));
    sent += part.size;
    const auto info = ethernet::classify(frame);
    ethernet::insert_l3_checksum(frame, info);
    ethernet::insert_l4_checksum(frame, info);
    const auto result = ethernet::check(frame, info);
    check(result.l3_ok && (result.l4_ok || info.ip.source_routed));
  }
  check(segmenter->done() && sent == payload.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] {
    // A copy of exactly this size, so that a sanitizer reports reads beyond it.
    const auto input = std::as_bytes(std::span(data, size));
    const std::vector<std::byte> bytes(input.begin(), input.end());
    const fuzz::Turn turn;
    fuzz_packet(bytes, wire::Link::kEthernet);
    fuzz_packet(bytes, wire::Link::kInfiniband);
    fuzz_ethernet(bytes);
    fuzz_segmentation(bytes);
  });
}
