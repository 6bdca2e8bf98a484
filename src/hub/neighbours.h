// Who on the network has which IPv4 address, by ARP (RFC 826): a port in front of a device's that
// answers for the device's own address, and learns from what others say. The device sees no ARP.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "fabric/port.h"
#include "wire/arp.h"
#include "wire/mac_address.h"

namespace softhca::hub {

class Neighbours final : public fabric::Port {
 public:
  using Ipv4Address = wire::Arp::Ipv4Address;
  /// So many are known at once; one more takes the place of one of them.
  static constexpr std::size_t kMax = 1024;

  /// `mac`, `address`: the device's own. @pre `below` outlives this
  Neighbours(fabric::Port& below, const wire::MacAddress& mac, const Ipv4Address& address);

  /// Nothing: nobody has told yet.
  std::optional<wire::MacAddress> find(const Ipv4Address& address) const;
  /// Sends a request to all; whoever has the address answers, and is known then.
  void ask(const Ipv4Address& address);
  /// Tells all that the device has its address now: who knew another's MAC takes this one (RFC 5227
  /// 2.3).
  void announce() { ask(address_); }

  std::uint64_t transmit(const wire::Frame& frame) override { return below_.transmit(frame); }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return below_.loop_back(frame, mark);
  }
  std::uint64_t released() const override { return below_.released(); }
  std::int64_t settle() override { return below_.settle(); }
  void set_receiver(fabric::Receiver* receiver) override;
  bool takes_trains() const override { return below_.takes_trains(); }
  bool link_up() const override { return below_.link_up(); }

 private:
  /// In front of the device.
  class Filter final : public fabric::Receiver {
   public:
    explicit Filter(Neighbours& owner) : owner_(owner) {}
    void handle_frame(const wire::Frame& frame) override;
    void handle_loopback(const wire::Frame& frame, std::uint32_t mark) override {
      behind->handle_loopback(frame, mark);
    }
    bool handle_no_memory() override { return behind->handle_no_memory(); }
    bool takes_trains() const override { return behind->takes_trains(); }
    fabric::Receiver* behind = nullptr;

   private:
    Neighbours& owner_;
  };

  wire::Frame& make_draft() override { return below_.draft(); }
  void handle_arp(const wire::Frame& frame);
  void learn(const Ipv4Address& address, const wire::MacAddress& mac);
  void send(const wire::MacAddress& to, const wire::Arp& arp);

  fabric::Port& below_;
  const wire::MacAddress mac_;
  const Ipv4Address address_;
  Filter filter_{*this};
  std::map<Ipv4Address, wire::MacAddress> known_;
};

}  // namespace softhca::hub
