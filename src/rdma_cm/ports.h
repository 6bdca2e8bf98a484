// The ports of the host's devices: their addresses, and their QP1.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cm/network.h"
#include "rdma_cm/identifier.h"
#include "rdma_cm/management_port.h"
#include "rdma_cm/options.h"

namespace softhca::rdma_cm {

class Ports final : public cm::Network {
 public:
  explicit Ports(const Options& options) : options_(options) {}
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;

  /// @pre `ports` has at least one; the first is the default
  util::Result<void> open(std::span<const DevicePort> ports);

  /// The device's entry of an address; nothing if no device has it.
  std::optional<cm::LocalAddress> find_local(const driver::Gid& gid) const;
  /// The source of a port's messages to `peer`.
  cm::LocalAddress local_for(const driver::Gid& peer, unsigned port) const;
  /// The source of an identifier that has neither a source nor a destination.
  cm::LocalAddress default_local() const {
    return local_for(driver::Gid::from_ipv4(0, 0, 0, 0), 0);
  }
  /// The source of the answer to a message: the address that the message was sent to.
  cm::LocalAddress answers_from(const cm::Received& message) const override;
  bool has_global_ipv6() const;
  std::uint64_t node_guid(unsigned port) const override { return ports_[port].node_guid; }
  std::uint8_t number_block(unsigned port) const override { return ports_[port].number_block; }
  /// An ib_mtu.
  std::uint8_t active_mtu(const Identifier& id) const {
    return ports_[id.connection.local.port].device.active_mtu();
  }

  /// False: too many datagrams wait, or there is no route to `to`, and its resolution has been
  /// started.
  bool send(const cm::Mad& mad, const cm::LocalAddress& from, const driver::Gid& to) override;
  /// The next datagram in order of arrival.
  std::optional<cm::Received> receive();

 private:
  /// A port with its QP1.
  struct OpenPort {
    uverbs::Device& device;
    std::uint64_t node_guid;
    std::uint8_t number_block;
    std::unique_ptr<ManagementPort> management;
  };

  const Options& options_;
  std::deque<cm::Received> inbox_;
  std::vector<OpenPort> ports_;
};

}  // namespace softhca::rdma_cm
