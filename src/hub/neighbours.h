// Who on the network has which address, by ARP (RFC 826) and Neighbor Discovery (RFC 4861): a port
// in front of a device's that answers for the device's own addresses, and learns from what others
// say. The device sees none of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  /// IPv4 in the mapped form.
  using Address = wire::Gid;
  /// So many are known at once; one more takes the place of one of them.
  static constexpr std::size_t kMax = 1024;

  /// `mac`: the device's own. @pre `below` outlives this
  Neighbours(fabric::Port& below, const wire::MacAddress& mac) : PassingPort(below), mac_(mac) {}

  /// The device's own from now on. Requests are sent from the first of their kind.
  void set_addresses(std::vector<Address> addresses) { own_ = std::move(addresses); }
  /// Nothing: nobody has told yet.
  std::optional<wire::MacAddress> find(const Address& address) const;
  /// Sends a request to all; whoever has the address answers, and is known then. Nothing happens
  /// where the device has no address of this kind itself.
  void ask(const Address& address);
  /// Tells all that the device has this address of its own now: who knew another's MAC takes this
  /// one (RFC 5227 2.3, RFC 4861 7.2.6).
  void announce(const Address& address);

 private:
  void arrive(const wire::Frame& frame, fabric::Receiver& to) override;
  bool is_own(const Address& address) const;
  const Address* own_of_kind(bool ipv4) const;
  void handle_arp(const wire::Frame& frame);
  /// False: something else.
  bool handle_ipv6(const wire::Frame& frame);
  void handle_neighbor(const wire::Neighbor& message, const wire::Ipv6& ip);
  void learn(const Address& address, const wire::MacAddress& mac);
  void send(const wire::MacAddress& to, const wire::Arp& arp);
  void send(const wire::MacAddress& to, const Address& from, const Address& destination,
            const wire::Neighbor& message);

  const wire::MacAddress mac_;
  std::vector<Address> own_;
  std::map<Address, wire::MacAddress> known_;
};

}  // namespace softhca::hub
