// Makes an InfiniBand subnet of a switch of the fabric: the switch forwards by LID (IBTA 18.2),
// answers for itself (agent.h), has a subnet manager in it (manager.h), and one who answers for the
// subnet (administration.h), unless somebody on a port is to be both.
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
  /// Ports of the switch besides its own; who is plugged into another is not heard.
  static constexpr std::uint8_t kPorts = 254;

  /// @pre `network` has no ports, and outlives this
  explicit Subnet(fabric::Switch& network, bool managed = true);
  /// @pre all other ports are destroyed
  ~Subnet() override;
  Subnet(const Subnet&) = delete;
  Subnet& operator=(const Subnet&) = delete;

  /// Lets time pass for the manager. Returns when to call again.
  util::Time run(util::Time now) { return manager_ ? manager_->run(now) : util::kNever; }

  const Agent& agent() const { return agent_; }
  /// @pre it has one
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
  std::optional<Manager> manager_;  ///< nothing: it is on another port, or nowhere
  std::optional<Administration> administration_;
  std::unique_ptr<fabric::Port> port_;  ///< port 0
  Ways ways_;
  std::uint8_t ingress_ = 0;  ///< of the frame that is being delivered
  wire::Frame draft_;
};

}  // namespace softhca::subnet
