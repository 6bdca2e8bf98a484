// The InfiniBand global route header (IBTA 8.3), in the form of an IPv6 header. A UD receive queue
// finds one in the first 40 bytes of its buffer (IBTA 11.4.1.2).
#pragma once

#include <optional>

#include "spec/infiniband/transport.h"
#include "wire/gid.h"

namespace softhca::wire {

using GrhLayout = spec::infiniband::grh;

using GrhView = util::View<GrhLayout>;

struct Grh {
  /// IBTA 8.3.5: "the next header is IBA transport".
  static constexpr std::uint8_t kIbaTransport = 0x1b;

  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint16_t payload_length = 0;
  std::uint8_t next_header = kIbaTransport;
  std::uint8_t hop_limit = 0;
  Gid sgid;
  Gid dgid;

  /// Nothing if IPVer is not 6.
  static std::optional<Grh> parse(GrhView view) {
    using L = GrhLayout;
    if (view.get(L::ip_version) != 6) return std::nullopt;
    Grh grh;
    grh.traffic_class = static_cast<std::uint8_t>(view.get(L::traffic_class));
    grh.flow_label = view.get(L::flow_label);
    grh.payload_length = static_cast<std::uint16_t>(view.get(L::payload_length));
    grh.next_header = static_cast<std::uint8_t>(view.get(L::next_header));
    grh.hop_limit = static_cast<std::uint8_t>(view.get(L::hop_limit));
    grh.sgid = Gid::from(view.get(L::sgid));
    grh.dgid = Gid::from(view.get(L::dgid));
    return grh;
  }
  void emit(util::MutableView<GrhLayout> out) const {
    using L = GrhLayout;
    out.set(L::ip_version, 6);
    out.set(L::traffic_class, traffic_class);
    out.set(L::flow_label, flow_label);
    out.set(L::payload_length, payload_length);
    out.set(L::next_header, next_header);
    out.set(L::hop_limit, hop_limit);
    std::memcpy(out.sub(L::sgid).data(), &sgid, Gid::kSize);
    std::memcpy(out.sub(L::dgid).data(), &dgid, Gid::kSize);
  }
  friend bool operator==(const Grh&, const Grh&) = default;
};

}  // namespace softhca::wire
