// The subnet management agent of a node (IBTA 14.3): the firmware of a port, which answers the
// subnet manager and stores what it sets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "subnet/mad.h"
#include "util/field.h"

namespace softhca::subnet {

using PortInfo = spec::infiniband::port_info;
using PortState = spec::infiniband::port_state;

/// Ports are counted from 1. A switch also has port 0, its own management port.
class Agent {
 public:
  struct Identity {
    spec::infiniband::node_type type = spec::infiniband::node_type::CHANNEL_ADAPTER;
    std::uint8_t ports = 1;
    std::uint64_t node_guid = 0;
    std::uint64_t port_guid =
        0;  ///< a switch: that of all ports; else that of port 1, and port n has n - 1 more
    std::string description;  ///< at most 64 bytes
    std::uint16_t device_id = 0;
    std::uint32_t vendor_id = 0;        ///< an OUI, 24 bits
    std::uint16_t partition_cap = 2;    ///< entries of the P_Key table, at most 32
    std::uint32_t capability_mask = 0;  ///< of PortInfo
    bool is_manager = false;            ///< the subnet manager runs here, so SMInfo is answered
  };

  /// Calls `handle_change` with the port when a Set changes its attributes, or when its state
  /// changes.
  Agent(Identity identity, std::function<void(std::uint8_t)> handle_change);

  const Identity& identity() const { return identity_; }
  /// @pre has_port(port)
  util::View<PortInfo> port_info(std::uint8_t port) const {
    return util::View<PortInfo>(ports_[port].info);
  }
  bool has_port(std::size_t port) const { return port >= first_port_ && port < ports_.size(); }
  PortState state(std::uint8_t port) const {
    return PortState(port_info(port).get(PortInfo::port_state));
  }
  Lid lid(std::uint8_t port) const {
    return Lid(static_cast<std::uint16_t>(port_info(port).get(PortInfo::lid)));
  }
  /// P_Key table of the port, Identity::partition_cap entries.
  std::span<const std::uint16_t> pkeys(std::uint8_t port) const { return ports_[port].pkeys; }
  /// Virtual lane of a service level at the egress of `port`.
  std::uint8_t virtual_lane(std::uint8_t port, std::uint8_t service_level) const;
  /// Switch only: the port that forwards to `lid`, or kNoPort.
  static constexpr std::uint8_t kNoPort = 255;
  std::uint8_t way_to(Lid lid) const {
    return lid.value() < linear_.size() ? linear_[lid.value()] : kNoPort;
  }
  /// Switch only: true if packets to this group leave by `port`.
  bool has_member(Lid group, std::uint8_t port) const;

  /// The link of a port comes up, in INIT, or goes down.
  void set_link(std::uint8_t port, bool up);

  /// The next step of a directed route (IBTA 14.2.2), for a request or response that arrived by
  /// `port`.
  enum class Hop : std::uint8_t {
    kHere,     ///< this node is the destination
    kOnwards,  ///< a switch forwards it by next_port()
    kNowhere,  ///< the route is invalid
  };
  Hop step(Mad& mad, std::uint8_t port) const;
  /// Prepares the response for the way back (IBTA 14.2.2.3): its route begins where the request's
  /// ended.
  static void turn_back(Mad& mad);
  /// Egress port of an SMP with a directed route.
  static std::uint8_t next_port(const Mad& mad);

  /// Turns a request that arrived by `port` into its response. False if there is no response to
  /// send. `trusted`: skips the M_Key check.
  bool answer(Mad& mad, std::uint8_t port, bool trusted = false);

  struct Counters {
    std::uint64_t answered = 0;
    std::uint64_t refused = 0;    ///< answered with a status that is not OK
    std::uint64_t discarded = 0;  ///< wrong M_Key, or not a request
  };
  const Counters& counters() const { return counters_; }

 private:
  using Data = std::span<std::byte, 64>;
  struct Request {
    Method method;
    std::uint32_t modifier;
    std::uint8_t arrival;
    bool knows_key;  ///< the request has the port's M_Key, or the port has none
    Data data;
  };
  using Handler = MadStatus (Agent::*)(const Request&);
  struct Attribute;
  static const std::array<Attribute, 12> kAttributes;

  struct Port {
    std::array<std::byte, PortInfo::kSize> info{};
    std::vector<std::uint16_t> pkeys;
    std::array<std::byte, 8> virtual_lanes{};  ///< of service levels, one nibble each
    std::array<std::array<std::byte, 64>, 4> arbitration{};
    std::array<std::byte, 64> guids{};
    bool link = false;
  };

  bool is_switch() const { return first_port_ == 0; }
  util::MutableView<PortInfo> info(std::uint8_t port) {
    return util::MutableView<PortInfo>(ports_[port].info);
  }
  void reset_port(std::uint8_t port);
  bool knows_key(const Mad& mad, std::uint8_t port) const;
  bool admits(Method method, std::uint8_t port);
  MadStatus dispatch(const Request& request, std::uint16_t attribute);
  /// The port that a modifier selects; 0 selects the arrival port of a channel adapter. kNoPort if
  /// there is no such port.
  std::uint8_t port_of(std::uint32_t number, std::uint8_t arrival) const;

  MadStatus node_description(const Request& request);
  MadStatus node_info(const Request& request);
  MadStatus switch_info(const Request& request);
  MadStatus guid_info(const Request& request);
  MadStatus port_info(const Request& request);
  MadStatus set_port_info(std::uint8_t port, util::View<PortInfo> to);
  MadStatus p_key_table(const Request& request);
  MadStatus sl_to_vl_table(const Request& request);
  MadStatus vl_arbitration(const Request& request);
  MadStatus linear_forwarding(const Request& request);
  MadStatus multicast_forwarding(const Request& request);
  MadStatus sm_info(const Request& request);
  MadStatus notice(const Request& request);

  const Identity identity_;
  const std::uint8_t first_port_;
  const std::function<void(std::uint8_t)> handle_change_;
  std::vector<Port> ports_;  ///< by number
  // Switch only.
  std::array<std::byte, spec::infiniband::switch_info::kSize> switch_info_{};
  std::vector<std::uint8_t> linear_;      ///< by LID
  std::vector<std::uint16_t> multicast_;  ///< port masks by multicast LID and position, 16 ports
                                          ///< each
  Counters counters_;
};

}  // namespace softhca::subnet
