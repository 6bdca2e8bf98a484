// The NIC virtual port (PRM 7.3, 12.16): addresses, filters, RoCE switch, and traffic counters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/command/command.h"
#include "rdma/types.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

/// Packets and octets (without FCS) of one kind of traffic.
struct TrafficCounter {
  std::uint64_t packets = 0;
  std::uint64_t octets = 0;

  void add(std::uint64_t bytes) {
    ++packets;
    octets += bytes;
  }
};

/// What the Ethernet side has moved and dropped. The RDMA side counts in its transport.
struct VportCounters {
  TrafficCounter received_errors;
  TrafficCounter transmit_errors;
  TrafficCounter received_eth_broadcast;
  TrafficCounter transmitted_eth_broadcast;
  TrafficCounter received_eth_unicast;
  TrafficCounter transmitted_eth_unicast;
  TrafficCounter received_eth_multicast;
  TrafficCounter transmitted_eth_multicast;
  std::uint64_t received_discards = 0;  ///< frames for us that found no rule, or no receive WQE
};

class Vport {
 public:
  static constexpr std::uint16_t kMaxMtu = 9978;  ///< as ConnectX-4: Ethernet payload plus headers

  Vport(const rdma::Mac& mac, std::uint64_t node_guid, const Limits& limits);

  const rdma::Mac& mac() const { return mac_; }  ///< permanent address
  std::uint64_t node_guid() const { return node_guid_; }
  bool roce_enabled() const { return roce_enabled_; }
  std::uint16_t mtu() const { return mtu_; }
  bool admin_up() const { return admin_up_; }
  void set_admin_up(bool up) { admin_up_ = up; }
  /// The least min_wqe_inline_mode of SQs (PRM 7.9.3).
  std::uint8_t min_inline_mode() const { return min_inline_mode_; }
  /// PRM 7.9.3.1: all values of the field but 4.
  static constexpr bool is_inline_mode(std::uint32_t mode) { return mode < 8 && mode != 4; }
  bool promisc_uc() const { return promisc_uc_; }
  bool promisc_mc() const { return promisc_mc_; }
  bool promisc_all() const { return promisc_all_; }
  std::span<const rdma::Mac> uc_list() const { return uc_list_; }
  std::span<const rdma::Mac> mc_list() const { return mc_list_; }
  std::span<const std::uint16_t> vlan_list() const { return vlan_list_; }

  VportCounters& counters() { return counters_; }

  /// QUERY_NIC_VPORT_CONTEXT: the context, and as much of the list of `type` as fits in `list`.
  void write_context(util::MutableView<spec::connectx::nic_vport_context> context,
                     std::span<std::byte> list, spec::connectx::allowed_list_type type) const;
  /// MODIFY_NIC_VPORT_CONTEXT: all of the selected fields, or none of them.
  CommandResult modify(util::View<spec::connectx::modify_nic_vport_field_select> select,
                       util::View<spec::connectx::nic_vport_context> context,
                       std::span<const std::byte> list);

 private:
  CommandResult set_list(util::View<spec::connectx::nic_vport_context> context,
                         std::span<const std::byte> list);

  Limits limits_;
  rdma::Mac mac_;
  std::uint64_t node_guid_;
  std::uint64_t port_guid_;
  std::uint64_t system_image_guid_;
  std::uint16_t mtu_ = 1522;
  std::uint8_t min_inline_mode_ = 0;
  bool roce_enabled_ = false;
  bool admin_up_ = true;
  bool promisc_uc_ = false;
  bool promisc_mc_ = false;
  bool promisc_all_ = false;
  std::vector<rdma::Mac> uc_list_;
  std::vector<rdma::Mac> mc_list_;
  std::vector<std::uint16_t> vlan_list_;
  VportCounters counters_;
};

}  // namespace softhca::connectx
