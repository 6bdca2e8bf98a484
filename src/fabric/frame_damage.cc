#include "fabric/frame_damage.h"

#include <vector>

#include "util/endian.h"
#include "wire/checksum.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/traffic_class.h"
#include "wire/vcrc.h"

namespace softhca::fabric {
namespace {

constexpr unsigned kBitsPerByte = 8;
/// RFC 3168 5: Not-ECT and CE.
constexpr std::uint8_t kNotCapable = 0, kCongested = 3;
/// RFC 791 3.1: the version.
constexpr unsigned kIpv4 = 4, kIpv6 = 6;

const FrameFacts::Range& range_of(const FrameFacts& facts, FramePart part) {
  if (part == FramePart::kHeader) return facts.header;
  return part == FramePart::kPayload ? facts.payload : facts.icrc;
}

}  // namespace

bool flip_bit(wire::Frame& frame, const FrameFacts& facts, FramePart part, std::uint64_t random) {
  const auto& range = range_of(facts, part);
  if (range.size == 0 || range.begin + range.size > frame.size()) return false;
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  const auto bit = random % (range.size * kBitsPerByte);
  bytes[range.begin + bit / kBitsPerByte] ^= std::byte{1} << (bit % kBitsPerByte);
  if (frame.link() == wire::Link::kInfiniband && bytes.size() > wire::kVcrcSize) {
    const auto covered = bytes.size() - wire::kVcrcSize;
    util::store_le16(bytes.data() + covered, wire::vcrc_of(std::span(bytes).first(covered)));
  }
  frame = wire::Frame::from_bytes(bytes, frame.link());
  (void)frame.own_segments();
  return true;
}

bool mark_congestion(wire::Frame& frame, const FrameFacts& facts) {
  if (!facts.has_ip) return false;
  const auto old = frame.head().subspan(facts.network_offset);
  // Whatever the EtherType says, the version may be wrong: a sender is not trusted, and another
  // rule may have damaged it.
  const auto version = wire::Ipv4View(old).get(wire::Ipv4Layout::version);
  const bool is_ipv4 = version == kIpv4;
  if (!is_ipv4 && (version != kIpv6 || old.size() < wire::Ipv6Layout::kSize)) return false;
  const wire::TrafficClass before{static_cast<std::uint8_t>(
      is_ipv4 ? wire::Ipv4View(old).get(wire::Ipv4Layout::tos)
              : wire::Ipv6View(old).get(wire::Ipv6Layout::traffic_class))};
  if (before.ecn() == kNotCapable || before.met_congestion()) return false;
  const auto after = wire::TrafficClass::make(before.dscp(), kCongested).value;
  const auto header = frame.mutable_head().subspan(facts.network_offset);
  if (!is_ipv4) {
    util::MutableView<wire::Ipv6Layout>(header).set(wire::Ipv6Layout::traffic_class, after);
    return true;
  }
  const util::MutableView<wire::Ipv4Layout> ip(header);
  const auto words = wire::Ipv4View(header).get(wire::Ipv4Layout::ihl);
  const auto size = std::min<std::size_t>(words * std::size_t{4}, header.size());
  ip.set(wire::Ipv4Layout::tos, after);
  ip.set(wire::Ipv4Layout::checksum, 0);
  ip.set(wire::Ipv4Layout::checksum, wire::checksum_of(header.first(size)));
  return true;
}

}  // namespace softhca::fabric
