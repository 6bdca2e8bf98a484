// The network port (PRM 8.4, 11.1) and the vport's way to it: what the function sends and gets
// passes here, Ethernet and RDMA alike.
//
// It keeps traffic back while the port or the vport is down, drops what is longer than the MTU,
// counts, and returns to the function what it sends to itself: "Multiple consumers that coexist on
// the same NIC port can communicate via a local loopback mechanism" (PRM 3.4), so no such frame
// reaches the wire. Who among them wants it is not decided here, but by the TIRs and QPs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "connectx/base/numbers.h"
#include "connectx/port/traffic_counters.h"
#include "fabric/port.h"
#include "spec/connectx/opcodes.h"
#include "wire/ethernet.h"
#include "wire/frame.h"
#include "wire/mac_address.h"

namespace softhca::connectx {

class NetworkPort final : public fabric::Port {
 public:
  /// Bytes of a frame with all its headers and the FCS, as in PMTU.
  static constexpr std::uint16_t kMaxMtu = 9978;
  static constexpr std::uint16_t kDefaultMtu = 1522;
  static constexpr std::size_t kFcs = 4;
  /// Frames of a consumer that belongs to no transport domain, as QPs.
  static constexpr TransportDomain kNoDomain{0};

  using AdminStatus = spec::connectx::paos_admin_status;
  using OperStatus = spec::connectx::paos_oper_status;

  /// @pre `wire` outlives this
  explicit NetworkPort(fabric::Port& wire);

  // The port (PRM Table 110, Table 106) ----------------------------------------------------------

  AdminStatus admin_status() const { return admin_; }
  /// Also lets a port come up again that was to be up once.
  void set_admin_status(AdminStatus status);
  OperStatus oper_status() const;
  std::uint16_t mtu() const { return mtu_; }
  void set_mtu(std::uint16_t mtu);
  /// Nobody tells when the link's partner comes or goes: to be called now and then.
  void look_at_link();

  // The vport (PRM 7.3) --------------------------------------------------------------------------

  void set_vport_up(bool up);
  /// 0: that of the port.
  void set_vport_mtu(std::uint16_t mtu);
  /// "In" the vport are its permanent address and those of its unicast list.
  void set_vport_addresses(std::span<const wire::MacAddress> addresses);
  /// Addresses of the GID table: RDMA is sent from them, and to them.
  void set_roce_addresses(std::span<const wire::MacAddress> addresses);
  /// Up, over a port that was up when it was last looked at: frames pass.
  bool vport_is_up() const { return passes_; }

  // Frames ---------------------------------------------------------------------------------------

  /// Of RDMA.
  std::uint64_t transmit(const wire::Frame& frame) override;
  /// Of an SQ whose TIS has this transport domain and Ethernet priority.
  std::uint64_t transmit_ethernet(const wire::Frame& frame, TransportDomain domain,
                                  unsigned priority);
  std::uint64_t released() const override { return wire_.released(); }

  /// Whether a frame as long as this one gets as far as the function.
  bool passes(const wire::Frame& frame) const { return passes_size(frame.size()); }
  /// The same of one that comes from the wire, which is counted.
  bool accept(const wire::Frame& frame);
  /// Whose the accepted frame was.
  void count_received(const wire::Frame& frame, Service service) {
    auto& last = last_received_[static_cast<std::size_t>(service)];
    auto* cell = last.find(frame);
    if (cell == nullptr) {
      cell = &counters_.rx(service, Way::kWire).cell(cast_of(frame), priority_of(frame));
      last.remember(frame, *cell);
    }
    cell->add(frame.size_of_all(), frame.packets());
  }
  /// Whether accept() and count_received() would do for this packet what they did for the one
  /// before.
  bool is_like_before(const wire::Frame& frame, Service service) const {
    const auto size = frame.size();
    return size == last_size_ && passes_size(size) &&
           last_received_[static_cast<std::size_t>(service)].knows(frame);
  }
  /// The same of a packet of another path.
  bool is_like_before_but_for_path(const wire::Frame& frame, Service service) const {
    const auto size = frame.size();
    return size == last_size_ && passes_size(size) &&
           last_received_[static_cast<std::size_t>(service)].find(frame) != nullptr;
  }
  /// Does that. @pre one of them said so
  void count_like_before(Service service) {
    ++*last_size_cell_;
    last_received_[static_cast<std::size_t>(service)].cell().add(last_size_);
  }
  /// Gets every packet that is sent, before it goes; empty: nobody does (PRM 3.5).
  using Sniffer = std::function<void(const wire::Frame&)>;
  void set_sniffer(Sniffer sniffer);
  bool has_sniffer() const { return static_cast<bool>(sniffer_); }
  /// Who took a frame that came back.
  void count_looped(const wire::Frame& frame, Service service) {
    counters_.rx(service, Way::kLoopback).add(cast_of(frame), priority_of(frame), frame);
  }
  void count_discard(unsigned priority, unsigned frames = 1) {
    counters_.received_discards[priority] += frames;
  }
  /// A frame that an SQ must not send.
  void count_transmit_error(const wire::Frame& frame) {
    counters_.transmit_errors.add(frame.size_of_all(), frame.packets());
  }
  const TrafficCounters& counters() const { return counters_; }
  /// Frames that were sent and not yet delivered: of the function since its last reset, which the
  /// wire's numbers outlive.
  std::uint64_t in_flight() const {
    const auto released = wire_.released();
    return last_number_ > released ? last_number_ - released : 0;
  }

  // For Device alone.
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return wire_.loop_back(frame, mark);
  }
  void set_receiver(fabric::Receiver* receiver) override { wire_.set_receiver(receiver); }
  bool takes_trains() const override { return wire_.takes_trains(); }
  bool link_up() const override { return wire_.link_up(); }

 private:
  static constexpr std::size_t kHeader = wire::EthernetLayout::kSize;

  bool passes_size(std::size_t size) const { return size - kHeader < passing_sizes_; }
  wire::Frame& make_draft() override { return wire_.draft(); }
  std::uint64_t send(const wire::Frame& frame, Service service, TransportDomain domain,
                     unsigned priority);
  std::uint64_t transmit_on_other_path(const wire::Frame& frame);
  std::uint64_t send_packets(const wire::Frame& train, Service service, TransportDomain domain,
                             unsigned priority);
  void refuse_transmit(const wire::Frame& frame);
  void refuse_received(const wire::Frame& frame);
  bool is_local(const wire::MacAddress& address) const;
  void update_limit();
  void update_addresses();
  void forget_sent();

  fabric::Port& wire_;
  /// How many sizes of frames pass, from an Ethernet header on: none while the port or the vport
  /// is down. So one comparison decides.
  std::size_t passing_sizes_ = 0;
  bool passes_ = false;
  std::uint64_t last_number_ = 0;
  /// One bit for the last six bits of each address of ours: most frames are found to be for others
  /// without a search.
  std::uint64_t local_filter_ = 0;
  std::vector<wire::MacAddress> local_;  ///< in order
  TrafficCounters counters_;
  Sniffer sniffer_;
  LastCell last_sent_;                     ///< of RDMA, to another station
  LastCell last_ethernet_sent_;            ///< of Ethernet, likewise
  unsigned last_priority_ = 0;             ///< of that frame
  std::array<LastCell, 2> last_received_;  ///< by service
  std::size_t last_size_ = 0;              ///< of a frame that was accepted
  std::uint64_t* last_size_cell_ = nullptr;

  AdminStatus admin_ = AdminStatus::UP;
  bool link_ = true;
  bool failed_ = false;  ///< was up once, and went down
  bool vport_up_ = true;
  std::uint16_t mtu_ = kDefaultMtu;
  std::uint16_t vport_mtu_ = 0;
  std::vector<wire::MacAddress> vport_addresses_;
  std::vector<wire::MacAddress> roce_addresses_;
};

}  // namespace softhca::connectx
