// The device's end of an InfiniBand link. Its subnet management agent answers packets to QP0, and
// its port state decides whether data may pass (IBTA 7.2.7, 14.3).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "jingzhao/link_port.h"
#include "rdma/port_addresses.h"
#include "subnet/agent.h"

namespace softhca::jingzhao {

class InfinibandPort final : public LinkPort {
 public:
  /// `handle_change`: called when the subnet manager has changed attributes or state of the port.
  InfinibandPort(fabric::Port& wire, std::string name, std::uint64_t node_guid,
                 std::function<void()> handle_change);

  /// Sets the receiver of packets that are not for QP0.
  void set_receiver(fabric::Receiver* receiver) override;
  /// Transmits data packets; drops them unless the port is active.
  std::uint64_t transmit(const wire::Frame& frame) override;
  /// True if data may pass.
  bool link_up() const override { return agent_.state(kPort) == subnet::PortState::ACTIVE; }

  /// Takes the state of the link. No notification says that the link partner comes or goes.
  void follow_link() { agent_.set_link(kPort, above_ != nullptr && wire().link_up()); }

  /// The port attributes for the transport.
  rdma::LinkAttributes attributes() const;
  std::span<const std::uint16_t> pkeys() const { return agent_.pkeys(kPort); }
  const subnet::Agent& agent() const { return agent_; }
  /// Answers an SMP of local software (MAD_IFC). False if there is no response.
  bool answer(subnet::Mad& mad, bool trusted) { return agent_.answer(mad, kPort, trusted); }

 private:
  static constexpr std::uint8_t kPort = 1;

  /// Receives frames ahead of the device and filters out SMPs.
  class Entrance final : public fabric::Receiver {
   public:
    explicit Entrance(InfinibandPort& port) : port_(port) {}
    void handle_frame(const wire::Frame& frame) override { port_.handle_frame(frame); }
    void handle_loopback(const wire::Frame& frame, std::uint32_t mark) override {
      port_.above_->handle_loopback(frame, mark);
    }
    bool handle_no_memory() override { return port_.above_->handle_no_memory(); }
    bool takes_trains() const override { return port_.above_->takes_trains(); }
    void handle_cost(std::int64_t units) override;

   private:
    InfinibandPort& port_;
  };

  void handle_frame(const wire::Frame& frame);
  void handle_smp(const wire::Frame& frame);

  Entrance entrance_{*this};
  fabric::Receiver* above_ = nullptr;
  subnet::Agent agent_;
  std::uint64_t last_ = 0;  ///< number of the last frame sent
};

}  // namespace softhca::jingzhao
