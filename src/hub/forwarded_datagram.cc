#include "hub/forwarded_datagram.h"

#include <algorithm>
#include <cassert>

#include "util/endian.h"

namespace softhca::hub {
namespace {

constexpr std::size_t kTo = LinkNote::kSize;
constexpr std::size_t kFrom = kTo + wire::Gid::kSize;
constexpr std::size_t kPort = kFrom + wire::Gid::kSize;
constexpr std::size_t kTrafficClass = kPort + sizeof(std::uint16_t);
constexpr std::size_t kHopLimit = kTrafficClass + 1;
constexpr std::size_t kPacket = kHopLimit + 1;
static_assert(kPacket == ForwardedDatagram::kHeaderSize);

}  // namespace

std::optional<ForwardedDatagram> ForwardedDatagram::parse(std::span<const std::byte> bytes) {
  const auto note = LinkNote::parse(bytes);
  if (!note || note->kind != LinkNote::Kind::kDatagram) return std::nullopt;
  if (bytes.size() <= kPacket || bytes.size() > kPacket + kPacketMax) return std::nullopt;
  return ForwardedDatagram{
      .to = wire::Gid::from(bytes.subspan<kTo, wire::Gid::kSize>()),
      .datagram = {.from = wire::Gid::from(bytes.subspan<kFrom, wire::Gid::kSize>()),
                   .source_port = util::load_be16(bytes.data() + kPort),
                   .traffic_class = std::to_integer<std::uint8_t>(bytes[kTrafficClass]),
                   .hop_limit = std::to_integer<std::uint8_t>(bytes[kHopLimit]),
                   .packet = bytes.subspan(kPacket)}};
}

void ForwardedDatagram::write(const wire::MacAddress& receiver, wire::Frame& frame) const {
  assert(!datagram.packet.empty() && datagram.packet.size() <= kPacketMax);
  const auto head = frame.begin(kPacket, datagram.packet);
  LinkNote{.to = receiver, .from = receiver, .kind = LinkNote::Kind::kDatagram}.emit(
      head.first<LinkNote::kSize>());
  std::ranges::copy(to.bytes, head.begin() + kTo);
  std::ranges::copy(datagram.from.bytes, head.begin() + kFrom);
  util::store_be16(head.data() + kPort, datagram.source_port);
  head[kTrafficClass] = std::byte{datagram.traffic_class};
  head[kHopLimit] = std::byte{datagram.hop_limit};
}

}  // namespace softhca::hub
