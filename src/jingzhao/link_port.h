// The device's end of its link. It loops packets to the port's own address back to the device,
// since a switch would not return them.
#pragma once

#include <cstdint>
#include <cstring>

#include "fabric/port.h"
#include "wire/ethernet.h"

namespace softhca::jingzhao {

class LinkPort : public fabric::Port {
 public:
  struct Counters {
    std::uint64_t sent = 0;  ///< packets
    std::uint64_t looped = 0;
    std::uint64_t received = 0;
    std::uint64_t discarded = 0;  ///< arrived while the device owed too much work
  };

  /// @pre `wire` outlives this
  explicit LinkPort(fabric::Port& wire) : Port(wire.shortcuts()), wire_(wire) {}

  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return wire_.loop_back(frame, mark);
  }
  std::uint64_t released() const override { return wire_.released(); }
  void set_receiver(fabric::Receiver* receiver) override { wire_.set_receiver(receiver); }
  bool takes_trains() const override { return wire_.takes_trains(); }
  bool link_up() const override { return wire_.link_up(); }

  const Counters& counters() const { return counters_; }
  void count_received(const wire::Frame& frame) { counters_.received += frame.packets(); }
  void count_discarded(const wire::Frame& frame) { counters_.discarded += frame.packets(); }

 protected:
  fabric::Port& wire() { return wire_; }
  std::uint64_t send(const wire::Frame& frame, bool to_itself) {
    counters_.sent += frame.packets();
    if (!to_itself) return wire_.transmit(frame);
    counters_.looped += frame.packets();
    return wire_.loop_back(frame, 0);
  }

 private:
  wire::Frame& make_draft() override { return wire_.draft(); }

  fabric::Port& wire_;
  Counters counters_;
};

/// Detects loopback by MAC address.
class EthernetPort final : public LinkPort {
 public:
  using LinkPort::LinkPort;
  std::uint64_t transmit(const wire::Frame& frame) override { return send(frame, is_own(frame)); }

 private:
  static bool is_own(const wire::Frame& frame) {
    const wire::EthernetView header(frame.link_header());
    const auto to = header.get(wire::EthernetLayout::destination);
    const auto from = header.get(wire::EthernetLayout::source);
    return std::memcmp(to.data(), from.data(), to.size()) == 0;
  }
};

}  // namespace softhca::jingzhao
