// Turns a switch of the fabric into an InfiniBand subnet. The switch forwards by LID (IBTA 18.2)
// and answers SMPs for itself (agent.h). Unless a node on a port does both, it contains the subnet
// manager (manager.h) and the subnet administration (administration.h).
//
//   fabric::Switch network;
//   Subnet subnet(network);                 before any other port
//   auto port = network.create_port("hca"); ports come up by themselves while frames are delivered
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "fabric/switch.h"
#include "subnet/administration.h"
#include "subnet/agent.h"
#include "subnet/manager.h"
#include "util/clock.h"

namespace softhca::subnet {

class Subnet final : private fabric::Forwarder, private fabric::Receiver {
 public:
  /// Ports of the switch besides its own. Packets from ports above this number are dropped.
  static constexpr std::uint8_t kPorts = 254;

  /// @pre `network` has no ports, and outlives this
  explicit Subnet(fabric::Switch& network, bool managed = true);
  /// @pre all other ports are destroyed
  ~Subnet() override;
  Subnet(const Subnet&) = delete;
  Subnet& operator=(const Subnet&) = delete;

  /// Advances the manager's time. Returns when to call again.
  util::Time run(util::Time now) { return manager_ ? manager_->run(now) : util::kNever; }

  const Agent& agent() const { return agent_; }
  /// @pre the subnet was constructed with `managed`
  const Manager& manager() const { return *manager_; }
  const Administration& administration() const { return *administration_; }

 private:
  const Ways& route(const wire::Frame& frame, std::uint32_t ingress) override;
  void handle_link(std::uint32_t port, bool up) override;
  void handle_frame(const wire::Frame& frame) override;
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}
  void handle_smp(Mad& mad, const MadRoute& route);
  void send(const Mad& mad, const MadRoute& route);

  fabric::Switch& network_;
  Agent agent_;
  std::optional<Manager> manager_;  ///< nothing if the manager is on another port, or there is none
  std::optional<Administration> administration_;
  std::unique_ptr<fabric::Port> port_;  ///< port 0
  Ways ways_;
  std::uint8_t ingress_ = 0;  ///< port that the current frame arrived by
  wire::Frame draft_;
};

}  // namespace softhca::subnet
