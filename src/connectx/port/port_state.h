// The state of the network port (PRM 8.4, 11.1) and of the vport on it (PRM 7.3), which decides the
// frames that pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "connectx/port/traffic_counters.h"
#include "fabric/port.h"
#include "spec/connectx/opcodes.h"
#include "wire/ethernet.h"

namespace softhca::connectx {

class PortState {
 public:
  static constexpr std::uint16_t kDefaultMtu = 1522;
  static constexpr std::size_t kFcs = 4;
  static constexpr std::size_t kHeader = wire::EthernetLayout::kSize;

  using AdminStatus = spec::connectx::paos_admin_status;
  using OperStatus = spec::connectx::paos_oper_status;

  /// @pre `wire` and `counters` outlive the state
  PortState(const fabric::Port& wire, TrafficCounters& counters);

  // The port (PRM Table 110, Table 106) ----------------------------------------------------------

  AdminStatus admin_status() const { return admin_; }
  /// Sets the status. If the port has failed after "up once", this brings it up again.
  void set_admin_status(AdminStatus status);
  OperStatus oper_status() const;
  /// Bytes of a frame with all headers and the FCS.
  std::uint16_t mtu() const { return mtu_; }
  void set_mtu(std::uint16_t mtu);
  /// Polls the link, because no event reports that the link partner comes or goes.
  void look_at_link();

  // The vport (PRM 7.3) --------------------------------------------------------------------------

  bool vport_enabled() const { return vport_up_; }
  void set_vport_up(bool up);
  /// Sets the MTU of the vport. 0: that of the port.
  void set_vport_mtu(std::uint16_t mtu);
  /// True if frames pass: the vport is up, and the port was up when last polled.
  bool vport_is_up() const { return passes_; }
  /// True if frames of this size, without FCS, pass.
  bool passes(std::size_t size) const { return size - kHeader < passing_sizes_; }

 private:
  void update_limit();

  const fabric::Port& wire_;
  TrafficCounters& counters_;
  /// Number of frame sizes that pass, counted from an Ethernet header on. 0 while the port or the
  /// vport is down, so that one comparison decides.
  std::size_t passing_sizes_ = 0;
  bool passes_ = false;
  AdminStatus admin_ = AdminStatus::UP;
  bool link_;
  bool failed_ = false;  ///< set to "up once", came up, and went down
  bool vport_up_ = true;
  std::uint16_t mtu_ = kDefaultMtu;
  std::uint16_t vport_mtu_ = 0;
};

}  // namespace softhca::connectx
