// The local route header of InfiniBand links (IBTA 7.7).
#pragma once

#include "spec/infiniband/transport.h"
#include "wire/ids.h"

namespace softhca::wire {

using LrhLayout = spec::infiniband::lrh;
using LrhNextHeader = spec::infiniband::lrh_next_header;
using LrhView = util::View<LrhLayout>;

struct Lrh {
  std::uint8_t virtual_lane = 0;
  std::uint8_t link_version = 0;  ///< 0
  std::uint8_t service_level = 0;
  LrhNextHeader next_header = LrhNextHeader::IBA_LOCAL;
  Lid dlid;
  std::uint16_t packet_length = 0;  ///< from the LRH to the ICRC, in units of 4 bytes
  Lid slid;

  static Lrh parse(LrhView view) {
    using L = LrhLayout;
    Lrh lrh;
    lrh.virtual_lane = static_cast<std::uint8_t>(view.get(L::virtual_lane));
    lrh.link_version = static_cast<std::uint8_t>(view.get(L::link_version));
    lrh.service_level = static_cast<std::uint8_t>(view.get(L::service_level));
    lrh.next_header = LrhNextHeader(view.get(L::next_header));
    lrh.dlid = Lid(static_cast<std::uint16_t>(view.get(L::dlid)));
    lrh.packet_length = static_cast<std::uint16_t>(view.get(L::packet_length));
    lrh.slid = Lid(static_cast<std::uint16_t>(view.get(L::slid)));
    return lrh;
  }
  void emit(util::MutableView<LrhLayout> out) const {
    using L = LrhLayout;
    std::memset(out.bytes().data(), 0, L::kSize);
    out.set(L::virtual_lane, virtual_lane);
    out.set(L::link_version, link_version);
    out.set(L::service_level, service_level);
    out.set(L::next_header, static_cast<std::uint32_t>(next_header));
    out.set(L::dlid, dlid.value());
    out.set(L::packet_length, packet_length);
    out.set(L::slid, slid.value());
  }
  friend bool operator==(const Lrh&, const Lrh&) = default;
};

}  // namespace softhca::wire
