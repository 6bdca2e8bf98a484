// An ARP packet for IPv4 on Ethernet (RFC 826).
#pragma once

#include <array>
#include <optional>

#include "util/field.h"
#include "wire/ethernet.h"

namespace softhca::wire {

struct ArpLayout {
  static constexpr std::size_t kSize = 28;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<ArpLayout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 31, 16> hardware_type{};
  static constexpr Bits<0, 15, 0> protocol_type{};
  static constexpr Bits<4, 31, 24> hardware_size{};
  static constexpr Bits<4, 23, 16> protocol_size{};
  static constexpr Bits<4, 15, 0> operation{};
  static constexpr util::ByteField<ArpLayout, 8, 6> sender_mac{};
  static constexpr util::ByteField<ArpLayout, 14, 4> sender_ip{};
  static constexpr util::ByteField<ArpLayout, 18, 6> target_mac{};
  static constexpr util::ByteField<ArpLayout, 24, 4> target_ip{};
};

using ArpView = util::View<ArpLayout>;

struct Arp {
  using Ipv4Address = std::array<std::byte, 4>;
  static constexpr std::uint16_t kRequest = 1, kReply = 2;

  std::uint16_t operation = kRequest;
  MacAddress sender_mac;
  Ipv4Address sender_ip{};
  MacAddress target_mac;
  Ipv4Address target_ip{};

  /// Nothing if the packet is not ARP for IPv4 over Ethernet.
  static std::optional<Arp> parse(ArpView view) {
    if (view.get(ArpLayout::hardware_type) != kEthernet ||
        view.get(ArpLayout::protocol_type) != static_cast<std::uint32_t>(EtherType::kIpv4) ||
        view.get(ArpLayout::hardware_size) != MacAddress::kSize ||
        view.get(ArpLayout::protocol_size) != sizeof(Ipv4Address)) {
      return std::nullopt;
    }
    Arp arp;
    arp.operation = static_cast<std::uint16_t>(view.get(ArpLayout::operation));
    arp.sender_mac = MacAddress::from(view.get(ArpLayout::sender_mac));
    arp.target_mac = MacAddress::from(view.get(ArpLayout::target_mac));
    std::ranges::copy(view.get(ArpLayout::sender_ip), arp.sender_ip.begin());
    std::ranges::copy(view.get(ArpLayout::target_ip), arp.target_ip.begin());
    return arp;
  }
  void emit(util::MutableView<ArpLayout> out) const {
    out.set(ArpLayout::hardware_type, kEthernet);
    out.set(ArpLayout::protocol_type, static_cast<std::uint32_t>(EtherType::kIpv4));
    out.set(ArpLayout::hardware_size, MacAddress::kSize);
    out.set(ArpLayout::protocol_size, sizeof(Ipv4Address));
    out.set(ArpLayout::operation, operation);
    std::ranges::copy(sender_mac.bytes, out.sub(ArpLayout::sender_mac).begin());
    std::ranges::copy(target_mac.bytes, out.sub(ArpLayout::target_mac).begin());
    std::ranges::copy(sender_ip, out.sub(ArpLayout::sender_ip).begin());
    std::ranges::copy(target_ip, out.sub(ArpLayout::target_ip).begin());
  }
  friend bool operator==(const Arp&, const Arp&) = default;

 private:
  static constexpr std::uint32_t kEthernet = 1;
};

}  // namespace softhca::wire
