// The context of the NIC virtual port (PRM 7.3, 12.16): addresses, MTU, RoCE switch.
//
// The address lists and promiscuous bits are requests: "request to allow any unicast address". The
// manager of a group of vports grants them in an L2 table (PRM 12.15). This function is no
// vport_group_manager and has no L2 table. Its vport is the only one and gets every frame that the
// port receives. Its flow tables drop unwanted frames.
//
// So the lists and bits are only stored and read back. The unicast list and the permanent address
// also determine which frames loop back to the function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/command/command.h"
#include "connectx/port/network_port.h"
#include "connectx/port/traffic_counters.h"
#include "rdma/types.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

class Vport {
 public:
  /// Passes the parts of the context that concern frames to `port`. @pre `port` outlives the vport
  Vport(const rdma::Mac& mac, std::uint64_t node_guid, NetworkPort& port, const Limits& limits);

  const rdma::Mac& mac() const { return mac_; }  ///< permanent address
  std::uint64_t node_guid() const { return node_guid_; }
  bool roce_enabled() const { return roce_enabled_; }
  std::uint16_t mtu() const { return mtu_; }  ///< 0: the port's MTU
  bool admin_up() const { return admin_up_; }
  void set_admin_up(bool up);
  /// The minimum min_wqe_inline_mode of SQs (PRM 7.9.3).
  std::uint8_t min_inline_mode() const { return min_inline_mode_; }
  /// PRM 7.9.3.1: all values of the field except 4.
  static constexpr bool is_inline_mode(std::uint32_t mode) { return mode < 8 && mode != 4; }
  bool promisc_uc() const { return promisc_uc_; }
  bool promisc_mc() const { return promisc_mc_; }
  bool promisc_all() const { return promisc_all_; }
  std::span<const rdma::Mac> uc_list() const { return uc_list_; }
  std::span<const rdma::Mac> mc_list() const { return mc_list_; }
  std::span<const std::uint16_t> vlan_list() const { return vlan_list_; }

  /// The counts of the vport since clear_counters().
  TrafficCounters counters() const { return port_.counters().since(cleared_counters_); }
  /// Clears the counts of the vport, but not those of the port.
  void clear_counters() { cleared_counters_ = port_.counters(); }

  /// QUERY_NIC_VPORT_CONTEXT: writes the context, and as much of the list of `type` as fits into
  /// `list`.
  void write_context(util::MutableView<spec::connectx::nic_vport_context> context,
                     std::span<std::byte> list, spec::connectx::allowed_list_type type) const;
  /// MODIFY_NIC_VPORT_CONTEXT: changes all selected fields. If one is refused, changes none.
  CommandResult modify(util::View<spec::connectx::modify_nic_vport_field_select> select,
                       util::View<spec::connectx::nic_vport_context> context,
                       std::span<const std::byte> list);

 private:
  CommandResult set_list(util::View<spec::connectx::nic_vport_context> context,
                         std::span<const std::byte> list);
  void report_addresses();

  NetworkPort& port_;
  Limits limits_;
  rdma::Mac mac_;
  std::uint64_t node_guid_;
  std::uint64_t port_guid_;
  std::uint64_t system_image_guid_;
  std::uint16_t mtu_ = 0;
  std::uint8_t min_inline_mode_ = 0;
  bool roce_enabled_ = false;
  bool admin_up_ = true;
  bool promisc_uc_ = false;
  bool promisc_mc_ = false;
  bool promisc_all_ = false;
  std::vector<rdma::Mac> uc_list_;
  std::vector<rdma::Mac> mc_list_;
  std::vector<std::uint16_t> vlan_list_;
  TrafficCounters cleared_counters_;
};

}  // namespace softhca::connectx
