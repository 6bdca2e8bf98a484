// The Ethernet header (IEEE 802.3 3.1.1): destination, source, EtherType.
#pragma once

#include "util/field.h"
#include "wire/mac_address.h"

namespace softhca::wire {

enum class EtherType : std::uint16_t {
  kIpv4 = 0x0800,
  kArp = 0x0806,
  kVlan = 0x8100,  ///< 802.1Q customer tag
  kIpv6 = 0x86dd,
  kServiceVlan = 0x88a8,  ///< 802.1Q service tag
  kRoceV1 = 0x8915,
};

struct EthernetLayout {
  static constexpr std::size_t kSize = 14;
  static constexpr util::ByteField<EthernetLayout, 0, 6> destination{};
  static constexpr util::ByteField<EthernetLayout, 6, 6> source{};
  // The word begins two bytes earlier, so that it ends where the header ends.
  static constexpr util::Field<EthernetLayout, util::ByteOrder::kBig, 10, 15, 0> ether_type{};
};

using EthernetView = util::View<EthernetLayout>;

struct Ethernet {
  /// IEEE 802.3 4.4.2 minFrameSize, without the FCS.
  static constexpr std::size_t kFrameMin = 60;

  MacAddress destination;
  MacAddress source;
  EtherType ether_type{};

  static Ethernet parse(EthernetView view) {
    return {MacAddress::from(view.get(EthernetLayout::destination)),
            MacAddress::from(view.get(EthernetLayout::source)),
            EtherType(view.get(EthernetLayout::ether_type))};
  }
  void emit(util::MutableView<EthernetLayout> out) const {
    std::memcpy(out.sub(EthernetLayout::destination).data(), &destination, MacAddress::kSize);
    std::memcpy(out.sub(EthernetLayout::source).data(), &source, MacAddress::kSize);
    out.set(EthernetLayout::ether_type, static_cast<std::uint32_t>(ether_type));
  }
  friend bool operator==(const Ethernet&, const Ethernet&) = default;
};

}  // namespace softhca::wire
