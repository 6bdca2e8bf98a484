// How a device's packets reach addresses that several processes have
// (hub/station.h). The device itself may share addresses with other processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "door/card/own_address.h"
#include "door/card/shared_port.h"
#include "driver/address.h"
#include "fabric/port.h"
#include "hub/neighbours.h"
#include "hub/uplink.h"

namespace softhca::door {

class SharedRoutes {
 public:
  struct Parts {
    const std::string& directory;  ///< of the run
    hub::Uplink& link;
    hub::Neighbours& neighbours;
    const OwnAddresses& own;
  };

  /// @pre the parts outlive it
  explicit SharedRoutes(const Parts& parts) : parts_(parts) {}

  /// The port of the device, in front of `below`.
  fabric::Port& make_port(fabric::Port& below);

  /// The addresses that the device shares with those of other processes; null: none.
  hub::SharedAddresses* addresses() const { return parts_.link.shared(); }
  /// The MAC that the device's own address has for other stations.
  driver::Mac mac_of_own(const driver::Gid& gid) const;
  /// The MAC to which packets for a QP go, if its address has this one.
  driver::Mac mac_of_qp(const driver::Mac& mac, std::uint32_t qpn) const;
  /// Whether the device's network knows the address as one that processes share.
  bool is_shared(const driver::Gid& gid) const;

 private:
  driver::Mac mac() const;
  /// Whether the device shares its own address `gid` with other processes.
  bool shares(const driver::Gid& gid) const;
  /// The number of the station of shared addresses; 0: there is none.
  unsigned station() const;

  const Parts parts_;
  std::unique_ptr<SharedPort> port_;  ///< null: the device shares no addresses
};

}  // namespace softhca::door
