// The subnet management agent of a node (IBTA 14.3): what a port's firmware answers a subnet
// manager, and what it keeps of what that one has said.
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

/// Ports are counted from 1; a switch also has port 0, which is its own.
class Agent {
 public:
  struct Identity {
    spec::infiniband::node_type type = spec::infiniband::node_type::CHANNEL_ADAPTER;
    std::uint8_t ports = 1;
    std::uint64_t node_guid = 0;
    std::uint64_t port_guid =
        0;                    ///< of all ports of a switch; else of the first, and they count up
    std::string description;  ///< at most 64 bytes
    std::uint16_t device_id = 0;
    std::uint32_t vendor_id = 0;        ///< an OUI, 24 bits
    std::uint16_t partition_cap = 2;    ///< entries of a P_Key table, at most 32
    std::uint32_t capability_mask = 0;  ///< of PortInfo
    bool is_manager = false;            ///< the subnet manager is here: SMInfo is answered
  };

  /// `handle_change` is called with the port whose attributes a Set has changed, or whose state
  /// has.
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
  /// As many as Identity::partition_cap.
  std::span<const std::uint16_t> pkeys(std::uint8_t port) const { return ports_[port].pkeys; }
  /// The virtual lane of a service level on the way out of `port`.
  std::uint8_t virtual_lane(std::uint8_t port, std::uint8_t service_level) const;
  /// A switch: the port to `lid`, or kNoPort.
  static constexpr std::uint8_t kNoPort = 255;
  std::uint8_t way_to(Lid lid) const {
    return lid.value() < linear_.size() ? linear_[lid.value()] : kNoPort;
  }
  /// A switch: whether what goes to this group leaves by `port`.
  bool has_member(Lid group, std::uint8_t port) const;

  /// The link of a port is there, in INIT, or is gone.
  void set_link(std::uint8_t port, bool up);

  /// Whether the hops of a directed route end here (IBTA 14.2.2), for a request or response that
  /// came in by `port`.
  enum class Hop : std::uint8_t {
    kHere,     ///< it is for this node
    kOnwards,  ///< of a switch: it leaves by next_port()
    kNowhere,  ///< it makes no sense
  };
  Hop step(Mad& mad, std::uint8_t port) const;
  /// A response leaves the node that made it (IBTA 14.2.2.3): the way back begins where the way
  /// here ended.
  static void turn_back(Mad& mad);
  /// Of an SMP with a directed route that leaves a node: by this port.
  static std::uint8_t next_port(const Mad& mad);

  /// Makes a response of a request that came in by `port`. False: there is none to be sent.
  /// `trusted`: the M_Key is not asked for.
  bool answer(Mad& mad, std::uint8_t port, bool trusted = false);

  struct Counters {
    std::uint64_t answered = 0;
    std::uint64_t refused = 0;    ///< answered with a status that is not OK
    std::uint64_t discarded = 0;  ///< by M_Key, or no request
  };
  const Counters& counters() const { return counters_; }

 private:
  using Data = std::span<std::byte, 64>;
  struct Request {
    Method method;
    std::uint32_t modifier;
    std::uint8_t arrival;
    bool knows_key;  ///< the port's M_Key, or there is none
    Data data;
  };
  using Handler = MadStatus (Agent::*)(const Request&);
  struct Attribute;
  static const std::array<Attribute, 12> kAttributes;

  struct Port {
    std::array<std::byte, PortInfo::kSize> info{};
    std::vector<std::uint16_t> pkeys;
    std::array<std::byte, 8> virtual_lanes{};  ///< a nibble for each service level
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
  /// The port of a modifier of which 0 means the one it came by; kNoPort: none.
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
  // Of a switch.
  std::array<std::byte, spec::infiniband::switch_info::kSize> switch_info_{};
  std::vector<std::uint8_t> linear_;      ///< by LID
  std::vector<std::uint16_t> multicast_;  ///< by multicast LID and position: 16 ports each
  Counters counters_;
};

}  // namespace softhca::subnet
