// A port in front of the hub's that turns around packets to the MAC of shared addresses
// (hub/station.h) for QPs of this device: they need not leave the process. A connected QP has the
// device's own MAC for such peers, so only packets of other QPs come here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "driver/address.h"
#include "fabric/passing_port.h"
#include "hub/roce_blocks.h"
#include "hub/station_frame.h"

namespace softhca::door {

class SharedPort final : public fabric::PassingPort {
 public:
  struct Options {
    driver::Mac station;       ///< of shared addresses
    driver::Mac own;           ///< of the device
    hub::RoceBlock block = 0;  ///< of the device's QP numbers
  };

  /// @pre `below` outlives this
  SharedPort(fabric::Port& below, const Options& options) : PassingPort(below), options_(options) {}

  std::uint64_t transmit(const wire::Frame& frame) override {
    if (!is_for_station(frame) || !is_for_own_block(frame)) return below().transmit(frame);
    constexpr std::uint32_t kNoDomain = 0;  // of a QP (connectx::NetworkPort)
    auto turned = frame;
    std::ranges::copy(options_.own.bytes, turned.mutable_head().begin());
    return below().loop_back(turned, kNoDomain);
  }

 private:
  bool is_for_station(const wire::Frame& frame) const {
    constexpr auto kSize = driver::Mac::kSize;
    const auto header = frame.link_header();
    return header.size() >= kSize &&
           std::ranges::equal(header.first<kSize>(), options_.station.bytes);
  }
  /// Packets of a train are for one QP.
  bool is_for_own_block(const wire::Frame& frame) const {
    if (const auto* const headers = frame.headers()) {
      return hub::block_of(headers->bth.dest_qp) == options_.block;
    }
    const auto parsed = hub::StationFrame::parse(frame.head());
    return parsed.kind == hub::StationFrame::Kind::kPacket &&
           hub::block_of(parsed.qpn) == options_.block;
  }

  const Options options_;
};

}  // namespace softhca::door
