// The network port (PRM 8.4, 11.1), and the vport's connection to it. All Ethernet and RDMA frames
// of the function pass here.
//
// It does the following:
// - blocks traffic while the port or the vport is down, and drops frames longer than the MTU;
// - counts frames;
// - loops frames that the function sends to itself back before the wire: "Multiple consumers that
//   coexist on the same NIC port can communicate via a local loopback mechanism" (PRM 3.4).
//
// TIRs and QPs decide which consumers receive a looped frame.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "connectx/base/numbers.h"
#include "connectx/port/local_addresses.h"
#include "connectx/port/port_state.h"
#include "connectx/port/traffic_counters.h"
#include "fabric/port.h"
#include "wire/frame.h"
#include "wire/mac_address.h"

namespace softhca::connectx {

class NetworkPort final : public fabric::Port {
 public:
  /// Bytes of a frame with all headers and the FCS, as in PMTU.
  static constexpr std::uint16_t kMaxMtu = 9978;
  static constexpr std::size_t kFcs = PortState::kFcs;
  /// The domain of frames of a consumer without a transport domain, such as a QP.
  static constexpr TransportDomain kNoDomain{0};

  /// @pre `wire` outlives the port
  explicit NetworkPort(fabric::Port& wire);

  PortState& state() { return state_; }
  const PortState& state() const { return state_; }

  // Local addresses ------------------------------------------------------------------------------

  // See LocalAddresses. Cached cells of sent frames are dropped.
  void set_vport_addresses(std::span<const wire::MacAddress> addresses);
  void set_roce_addresses(std::span<const wire::MacAddress> addresses);

  // Frames ---------------------------------------------------------------------------------------

  /// Sends an RDMA frame.
  std::uint64_t transmit(const wire::Frame& frame) override;
  /// Sends a frame of an SQ whose TIS has this transport domain and Ethernet priority.
  std::uint64_t transmit_ethernet(const wire::Frame& frame, TransportDomain domain,
                                  unsigned priority);
  std::uint64_t released() const override { return wire_.released(); }

  /// True if a frame of this length reaches the function.
  bool passes(const wire::Frame& frame) const { return state_.passes(frame.size()); }
  /// Like passes(), and counts the frame, which comes from the wire.
  bool accept(const wire::Frame& frame);
  /// Counts an accepted frame for the service that received it.
  void count_received(const wire::Frame& frame, Service service) {
    auto& last = last_received_[static_cast<std::size_t>(service)];
    auto* cell = last.find(frame);
    if (cell == nullptr) {
      cell = &counters_.rx(service, Way::kWire).cell(cast_of(frame), priority_of(frame));
      last.remember(frame, *cell);
    }
    cell->add(frame.size_of_all(), frame.packets());
  }
  /// True if accept() and count_received() would count this packet in the cells of the last one.
  bool can_count_fast(const wire::Frame& frame, Service service) const {
    const auto size = frame.size();
    const auto& last = last_received_[static_cast<std::size_t>(service)];
    if (size != last_size_ || !state_.passes(size)) return false;
    // All RDMA frames of this process have a flow, but not all Ethernet frames.
    return (service == Service::kRdma && last.can_find_fast(frame)) || last.find(frame) != nullptr;
  }
  /// Fast path of accept() and count_received(). @pre can_count_fast()
  void count_fast(Service service) {
    ++*last_size_cell_;
    last_received_[static_cast<std::size_t>(service)].cell().add(last_size_);
  }
  /// Called for every packet before it is sent (PRM 3.5). Empty: no sniffer.
  using Sniffer = std::function<void(const wire::Frame&)>;
  void set_sniffer(Sniffer sniffer);
  bool has_sniffer() const { return static_cast<bool>(sniffer_); }
  /// Counts a looped frame for the service that received it.
  void count_looped(const wire::Frame& frame, Service service) {
    counters_.rx(service, Way::kLoopback).add(cast_of(frame), priority_of(frame), frame);
  }
  void count_discard(unsigned priority, unsigned frames = 1) {
    counters_.received_discards[priority] += frames;
  }
  /// Counts a frame that an SQ must not send.
  void count_transmit_error(const wire::Frame& frame) {
    counters_.transmit_errors.add(frame.size_of_all(), frame.packets());
  }
  const TrafficCounters& counters() const { return counters_; }
  /// Number of frames sent since the function's last reset and not yet delivered. The wire's
  /// numbers continue over a reset.
  std::uint64_t in_flight() const {
    const auto released = wire_.released();
    return last_number_ > released ? last_number_ - released : 0;
  }

  // Only for Device.
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return wire_.loop_back(frame, mark);
  }
  void set_receiver(fabric::Receiver* receiver) override { wire_.set_receiver(receiver); }
  bool takes_trains() const override { return wire_.takes_trains(); }
  bool link_up() const override { return wire_.link_up(); }

 private:
  wire::Frame& make_draft() override { return wire_.draft(); }
  std::uint64_t send(const wire::Frame& frame, Service service, TransportDomain domain,
                     unsigned priority);
  std::uint64_t transmit_other_flow(const wire::Frame& frame);
  std::uint64_t send_packets(const wire::Frame& train, Service service, TransportDomain domain,
                             unsigned priority);
  void refuse_transmit(const wire::Frame& frame);
  void refuse_received(const wire::Frame& frame);
  void forget_sent();

  fabric::Port& wire_;
  std::uint64_t last_number_ = 0;
  LocalAddresses local_;
  TrafficCounters counters_;
  PortState state_;
  Sniffer sniffer_;
  LastCell last_sent_;                     ///< RDMA, to another station
  LastCell last_ethernet_sent_;            ///< Ethernet, to another station
  unsigned last_priority_ = 0;             ///< priority of the last Ethernet frame
  std::array<LastCell, 2> last_received_;  ///< by service
  std::size_t last_size_ = 0;              ///< size of the last accepted frame
  std::uint64_t* last_size_cell_ = nullptr;
};

}  // namespace softhca::connectx
