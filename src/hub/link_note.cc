#include "hub/link_note.h"

#include <algorithm>

namespace softhca::hub {
namespace {

using wire::EthernetLayout;

constexpr std::size_t kKind = EthernetLayout::kSize + LinkNote::kOurs.size();
static_assert(LinkNote::kSize == kKind + 1);

}  // namespace

std::optional<LinkNote> LinkNote::parse(std::span<const std::byte> frame) {
  if (frame.size() <= kKind) return std::nullopt;
  const wire::EthernetView header(frame);
  const auto ours = std::as_bytes(std::span(kOurs));
  if (header.get(EthernetLayout::ether_type) != kEtherType ||
      !std::equal(ours.begin(), ours.end(), frame.begin() + EthernetLayout::kSize)) {
    return std::nullopt;
  }
  return LinkNote{.to = wire::MacAddress::from(header.get(EthernetLayout::destination)),
                  .from = wire::MacAddress::from(header.get(EthernetLayout::source)),
                  .kind = static_cast<Kind>(frame[kKind])};
}

wire::Frame LinkNote::frame() const {
  wire::Frame out;
  const auto head = out.resize_head(wire::Ethernet::kFrameMin);
  std::ranges::fill(head, std::byte{0});
  emit(head.first<kSize>());
  return out;
}

void LinkNote::emit(std::span<std::byte, kSize> head) const {
  wire::Ethernet{
      .destination = to, .source = from, .ether_type = static_cast<wire::EtherType>(kEtherType)}
      .emit(util::MutableView<EthernetLayout>(head));
  std::ranges::copy(std::as_bytes(std::span(kOurs)), head.begin() + EthernetLayout::kSize);
  head[kKind] = static_cast<std::byte>(kind);
}

}  // namespace softhca::hub
