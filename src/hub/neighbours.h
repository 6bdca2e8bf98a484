// The neighbor table of a device: ARP (RFC 826) and Neighbor Discovery (RFC 4861) on a port in
// front of the device's port. It answers for the device's addresses, and learns from other
// stations' messages. The device receives neither.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/passing_port.h"
#include "wire/arp.h"
#include "wire/gid.h"
#include "wire/ipv6.h"
#include "wire/mac_address.h"
#include "wire/neighbor_discovery.h"

namespace softhca::hub {

class Neighbours final : public fabric::PassingPort {
 public:
  /// IPv4 addresses are in the mapped form.
  using Address = wire::Gid;
  /// Maximum number of entries; a further one evicts another.
  static constexpr std::size_t kMax = 1024;

  /// `mac`: the device's own. @pre `below` outlives this
  Neighbours(fabric::Port& below, const wire::MacAddress& mac) : PassingPort(below), mac_(mac) {}

  /// Replaces the device's addresses. Requests are sent from the first of each IP version.
  void set_addresses(std::vector<Address> addresses) { own_ = std::move(addresses); }
  /// From now on the device's addresses for which `is_shared` returns true have this MAC in all
  /// messages (station.h). Their Ethernet headers still have the device's own, so that no switch
  /// learns the other one here.
  void set_station(const wire::MacAddress& mac, std::function<bool(const Address&)> is_shared) {
    station_ = mac;
    is_shared_ = std::move(is_shared);
  }
  /// Nothing: the address is not resolved.
  std::optional<wire::MacAddress> find(const Address& address) const;
  /// Broadcasts a request; the station with the address answers and is learned. Does nothing if the
  /// device has no address of the same IP version.
  void ask(const Address& address);
  /// Announces that the device now has this address: stations that mapped it to another MAC replace
  /// the entry (RFC 5227 2.3, RFC 4861 7.2.6).
  void announce(const Address& address);

 private:
  void arrive(const wire::Frame& frame, fabric::Receiver& to) override;
  bool is_own(const Address& address) const;
  const wire::MacAddress& mac_of(const Address& own) const {
    return is_shared_ && is_shared_(own) ? station_ : mac_;
  }
  const Address* own_of_kind(bool ipv4) const;
  void handle_arp(const wire::Frame& frame);
  /// False: the frame is something else.
  bool handle_ipv6(const wire::Frame& frame);
  void handle_neighbor(const wire::Neighbor& message, const wire::Ipv6& ip);
  void learn(const Address& address, const wire::MacAddress& mac);
  void send(const wire::MacAddress& to, const wire::Arp& arp);
  void send(const wire::MacAddress& to, const Address& from, const Address& destination,
            const wire::Neighbor& message);

  const wire::MacAddress mac_;
  wire::MacAddress station_;
  std::function<bool(const Address&)> is_shared_;  ///< empty: none is
  std::vector<Address> own_;
  std::map<Address, wire::MacAddress> known_;
};

}  // namespace softhca::hub
