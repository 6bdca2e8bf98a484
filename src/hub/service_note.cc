#include "hub/service_note.h"

#include <algorithm>

#include "hub/link_note.h"

namespace softhca::hub {
namespace {

using wire::EthernetLayout;

constexpr std::string_view kOurs = LinkNote::kOurs;

/// The bytes behind the Ethernet header and kOurs.
struct Layout {
  static constexpr std::size_t kSize = 37;
  static constexpr util::ByteField<Layout, 0, 1> kind{};
  static constexpr util::ByteField<Layout, 1, 2> port_space{};
  static constexpr util::ByteField<Layout, 3, 2> port{};
  static constexpr util::ByteField<Layout, 5, 16> machine{};
  static constexpr util::ByteField<Layout, 21, 16> owner{};
};

constexpr std::size_t kHead = EthernetLayout::kSize + kOurs.size();
constexpr std::size_t kNoteSize = kHead + Layout::kSize;
static_assert(kNoteSize <= wire::Ethernet::kFrameMin);

}  // namespace

std::optional<ServiceNote> ServiceNote::parse(const wire::Frame& frame) {
  if (frame.size() < kNoteSize) return std::nullopt;
  std::array<std::byte, kNoteSize> bytes;
  frame.copy_range(0, bytes);
  const wire::EthernetView header(bytes);
  const auto ours = std::as_bytes(std::span(kOurs));
  if (header.get(EthernetLayout::ether_type) != kEtherType ||
      !std::equal(ours.begin(), ours.end(), bytes.begin() + EthernetLayout::kSize)) {
    return std::nullopt;
  }
  const util::View<Layout> view{std::span(bytes).subspan(kHead)};
  const auto kind = static_cast<Kind>(view.get(Layout::kind)[0]);
  if (kind != Kind::kQuestion && kind != Kind::kAnswer) return std::nullopt;
  ServiceNote note{.to = wire::MacAddress::from(header.get(EthernetLayout::destination)),
                   .from = wire::MacAddress::from(header.get(EthernetLayout::source)),
                   .kind = kind};
  note.service.port_space = util::load_be16(view.get(Layout::port_space).data());
  note.service.port = util::load_be16(view.get(Layout::port).data());
  std::ranges::copy(view.get(Layout::machine), note.service.machine.bytes.begin());
  std::ranges::copy(view.get(Layout::owner), note.owner.bytes.begin());
  return note;
}

wire::Frame ServiceNote::frame() const {
  wire::Frame out;
  const auto head = out.resize_head(wire::Ethernet::kFrameMin);
  std::ranges::fill(head, std::byte{0});
  wire::Ethernet{
      .destination = to, .source = from, .ether_type = static_cast<wire::EtherType>(kEtherType)}
      .emit(util::MutableView<EthernetLayout>(head.first<EthernetLayout::kSize>()));
  std::ranges::copy(std::as_bytes(std::span(kOurs)), head.begin() + EthernetLayout::kSize);
  const util::MutableView<Layout> view(head.subspan(kHead));
  view.sub(Layout::kind)[0] = static_cast<std::byte>(kind);
  util::store_be16(view.sub(Layout::port_space).data(), service.port_space);
  util::store_be16(view.sub(Layout::port).data(), service.port);
  std::ranges::copy(service.machine.bytes, view.sub(Layout::machine).begin());
  std::ranges::copy(owner.bytes, view.sub(Layout::owner).begin());
  return out;
}

}  // namespace softhca::hub
