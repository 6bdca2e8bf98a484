// The bytes behind an 802.1Q EtherType: tag control information and the next EtherType (IEEE 802.1Q
// 9.6).
#pragma once

#include "util/field.h"
#include "wire/ethernet.h"

namespace softhca::wire {

struct VlanLayout {
  static constexpr std::size_t kSize = 4;
  template <unsigned Hi, unsigned Lo>
  using Bits = util::Field<VlanLayout, util::ByteOrder::kBig, 0, Hi, Lo>;
  static constexpr Bits<31, 16> tci{};
  static constexpr Bits<31, 29> pcp{};
  static constexpr Bits<28, 28> dei{};
  static constexpr Bits<27, 16> vid{};
  static constexpr Bits<15, 0> ether_type{};
};

using VlanView = util::View<VlanLayout>;

struct Vlan {
  /// Priority (15:13), drop eligible (12), VLAN identifier (11:0).
  std::uint16_t tci = 0;
  EtherType ether_type{};  ///< EtherType behind the tag

  std::uint16_t vid() const { return static_cast<std::uint16_t>(part(VlanLayout::vid)); }
  std::uint8_t pcp() const { return static_cast<std::uint8_t>(part(VlanLayout::pcp)); }
  bool dei() const { return part(VlanLayout::dei) != 0; }
  static std::uint16_t make_tci(std::uint16_t vid, std::uint8_t pcp) {
    util::Struct<VlanLayout> tag;
    tag.set(VlanLayout::vid, vid);
    tag.set(VlanLayout::pcp, pcp);
    return static_cast<std::uint16_t>(tag.get(VlanLayout::tci));
  }

  static Vlan parse(VlanView view) {
    return {static_cast<std::uint16_t>(view.get(VlanLayout::tci)),
            EtherType(view.get(VlanLayout::ether_type))};
  }
  void emit(util::MutableView<VlanLayout> out) const {
    out.set(VlanLayout::tci, tci);
    out.set(VlanLayout::ether_type, static_cast<std::uint32_t>(ether_type));
  }
  friend bool operator==(const Vlan&, const Vlan&) = default;

 private:
  template <class Field>
  std::uint32_t part(Field field) const {
    util::Struct<VlanLayout> tag;
    tag.set(VlanLayout::tci, tci);
    return tag.get(field);
  }
};

}  // namespace softhca::wire
