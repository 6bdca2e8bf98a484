// The ports of the host's devices: their addresses, and their QP1.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rdma_cm/identifier.h"
#include "rdma_cm/management_port.h"
#include "rdma_cm/options.h"

namespace softhca::rdma_cm {

/// A datagram, and the port that received it.
struct Received : Arrival {
  unsigned port;
};

class Ports {
 public:
  /// @pre `ports` has at least one; the first is the default
  static util::Result<std::unique_ptr<Ports>> open(std::span<const DevicePort> ports);

  /// The device's entry of an address; nothing if no device has it.
  std::optional<LocalAddress> find_local(const driver::Gid& gid) const;
  /// The source of a port's messages to `peer`.
  LocalAddress local_for(const driver::Gid& peer, unsigned port) const;
  /// The source of an identifier that has neither a source nor a destination.
  LocalAddress default_local() const { return local_for(driver::Gid::from_ipv4(0, 0, 0, 0), 0); }
  /// The source of the answer to a request: the address that the request was sent to.
  LocalAddress answers_from(const Received& message) const;
  bool has_global_ipv6() const;
  std::uint64_t node_guid(unsigned port) const { return ports_[port].node_guid; }
  /// An ib_mtu.
  std::uint8_t active_mtu(const Identifier& id) const {
    return ports_[id.connection.local.port].device.active_mtu();
  }

  /// False: there is no route to `to` now, or too many datagrams wait.
  bool send(const Mad& mad, const LocalAddress& from, const driver::Gid& to) {
    return ports_[from.port].management->send(mad, from.gid_index, to);
  }
  /// The next datagram in order of arrival.
  std::optional<Received> receive();

 private:
  /// A port with its QP1.
  struct OpenPort {
    uverbs::Device& device;
    std::uint64_t node_guid;
    std::unique_ptr<ManagementPort> management;
  };

  Ports() = default;

  std::deque<Received> inbox_;
  std::vector<OpenPort> ports_;
};

}  // namespace softhca::rdma_cm
