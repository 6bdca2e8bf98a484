// Neighbor Solicitation and Advertisement with the option for an Ethernet address (RFC 4861 4.3,
// 4.4, 4.6.1; RFC 2464 6): the equivalent of ARP for IPv6.
#pragma once

#include <optional>

#include "util/field.h"
#include "wire/checksum.h"
#include "wire/gid.h"
#include "wire/ipv4.h"
#include "wire/mac_address.h"

namespace softhca::wire {

struct NeighborLayout {
  static constexpr std::size_t kSize = 32;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<NeighborLayout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 31, 24> type{};
  static constexpr Bits<0, 23, 16> code{};
  static constexpr Bits<0, 15, 0> checksum{};
  static constexpr Bits<4, 30, 30> solicited{};
  static constexpr Bits<4, 29, 29> overrides{};
  static constexpr util::ByteField<NeighborLayout, 8, 16> target{};
  static constexpr Bits<24, 31, 24> option_type{};
  static constexpr Bits<24, 23, 16> option_length{};
  static constexpr util::ByteField<NeighborLayout, 26, 6> mac{};
};

using NeighborView = util::View<NeighborLayout>;

struct Neighbor {
  static constexpr std::uint8_t kSolicitation = 135, kAdvertisement = 136;
  /// RFC 4861 7.1: a message that has passed a router is ignored.
  static constexpr std::uint8_t kHopLimit = 255;

  std::uint8_t type = kSolicitation;
  bool solicited = false;  ///< sent in answer to a solicitation
  Gid target;
  MacAddress mac;  ///< of the sender; in an answer, of the target

  /// Nothing if it is another message, or has no Ethernet address.
  static std::optional<Neighbor> parse(NeighborView view) {
    using L = NeighborLayout;
    Neighbor message;
    message.type = static_cast<std::uint8_t>(view.get(L::type));
    const bool asks = message.type == kSolicitation;
    if ((!asks && message.type != kAdvertisement) || view.get(L::code) != 0 ||
        view.get(L::option_type) != (asks ? kSourceAddress : kTargetAddress) ||
        view.get(L::option_length) != 1) {
      return std::nullopt;
    }
    message.solicited = view.get(L::solicited) != 0;
    message.target = Gid::from(view.get(L::target));
    message.mac = MacAddress::from(view.get(L::mac));
    return message;
  }
  /// Writes the message, with the checksum for these addresses (RFC 4443 2.3).
  void emit(util::MutableView<NeighborLayout> out, const Gid& from, const Gid& to) const {
    using L = NeighborLayout;
    out.set(L::type, type);
    out.set(L::code, 0);
    out.set(L::checksum, 0);
    out.set(L::solicited, solicited);
    out.set(L::overrides, type == kAdvertisement);
    std::ranges::copy(target.bytes, out.sub(L::target).begin());
    out.set(L::option_type, type == kSolicitation ? kSourceAddress : kTargetAddress);
    out.set(L::option_length, 1);
    std::ranges::copy(mac.bytes, out.sub(L::mac).begin());
    out.set(L::checksum, checksum(out.bytes(), from, to));
  }
  /// The checksum of `bytes`; 0 if they include their own correct checksum.
  static std::uint16_t checksum(std::span<const std::byte> bytes, const Gid& from, const Gid& to) {
    ChecksumSum sum;
    sum.add(from.bytes);
    sum.add(to.bytes);
    sum.add_u32(static_cast<std::uint32_t>(bytes.size()));
    sum.add_u32(static_cast<std::uint32_t>(IpProtocol::kIcmpv6));
    sum.add(bytes);
    return sum.checksum();
  }
  /// RFC 4291 2.7.1: the group that every node with `address` joins.
  static Gid solicited_node(const Gid& address) {
    Gid group;
    util::store_be64(group.bytes.data(), 0xff02'0000'0000'0000);
    util::store_be64(group.bytes.data() + 8, 0x0000'0001'ff00'0000);
    std::ranges::copy(std::span(address.bytes).last<3>(), group.bytes.end() - 3);
    return group;
  }
  /// The Ethernet address of a multicast group (RFC 2464 7).
  static MacAddress group_mac(const Gid& group) {
    MacAddress mac;
    mac.bytes[0] = mac.bytes[1] = std::byte{0x33};
    std::ranges::copy(std::span(group.bytes).last<4>(), mac.bytes.begin() + 2);
    return mac;
  }
  friend bool operator==(const Neighbor&, const Neighbor&) = default;

 private:
  static constexpr std::uint32_t kSourceAddress = 1, kTargetAddress = 2;
};

}  // namespace softhca::wire
