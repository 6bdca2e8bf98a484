// SET_ROCE_ADDRESS, QUERY_ROCE_ADDRESS (mlx5 driver interface 7.8), ATTACH_TO_MCG, DETACH_FROM_MCG
// (7.10).
#include <algorithm>
#include <vector>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/function/capabilities.h"
#include "connectx/port/network_port.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/caps.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"
#include "util/bits.h"

namespace softhca::connectx {

namespace {

using spec::connectx::attach_to_mcg_in;
using spec::connectx::detach_from_mcg_in;
using spec::connectx::query_roce_address_in;
using spec::connectx::query_roce_address_out;
using spec::connectx::roce_address;
using spec::connectx::roce_l3_type;
using spec::connectx::roce_version;
using spec::connectx::set_roce_address_in;

constexpr std::string_view kAddressSection = "mlx5 driver interface 7.8";
constexpr std::string_view kGroupSection = "mlx5 driver interface 7.10";

/// Makes frames to the addresses of GIDs loop back, as RDMA to the device's own port requires.
void report_addresses(DriverState& driver) {
  const auto& gids = driver.rdma().gids();
  std::vector<wire::MacAddress> addresses;
  for (std::size_t i = 0; i < gids.size(); ++i) {
    if (const auto* entry = gids.get(i)) addresses.push_back(entry->mac);
  }
  driver.network_port().set_roce_addresses(addresses);
}

/// True if the device has the RoCE version. The capability has one bit for each.
bool has_version(DriverState& driver, roce_version version) {
  using spec::connectx::roce_cap;
  const auto group = driver.capabilities().current(Capabilities::Type::ROCE);
  const auto versions = util::View<roce_cap>(group).get(roce_cap::roce_version);
  return util::has_bit(versions, static_cast<unsigned>(version));
}

}  // namespace

CommandResult set_roce_address(DriverState& driver, const Command& command) {
  const auto in = command.input<set_roce_address_in>();
  const auto address = in.get(set_roce_address_in::roce_address);
  const std::size_t index = in.get(set_roce_address_in::roce_address_index);
  auto& gids = driver.rdma().gids();
  if (index >= driver.limits().roce_address_table_size) {
    return refuse(Status::BAD_INDEX, kAddressSection, "the index is past the table");
  }
  rdma::SourceAddress entry;
  entry.gid = rdma::Gid::from(address.get(roce_address::source_l3_address));
  if (entry.gid.is_zero()) {  // "All zero = delete"
    gids.clear(index);
    report_addresses(driver);
    return {};
  }
  const auto version = static_cast<roce_version>(address.get(roce_address::roce_version));
  if (version != roce_version::V1 && version != roce_version::V2) {
    return refuse(Status::BAD_PARAM, kAddressSection, "roce_version is neither v1 nor v2");
  }
  if (!has_version(driver, version)) {
    return refuse(Status::BAD_PARAM, kAddressSection, "roce_version is none that the card has");
  }
  entry.roce_v2 = version == roce_version::V2;
  entry.mac = rdma::Mac::from(address.get(roce_address::source_mac));
  if (address.get(roce_address::vlan_valid) != 0) {
    entry.vlan_id = static_cast<std::uint16_t>(address.get(roce_address::vlan_id));
  }
  gids.set(index, entry);
  report_addresses(driver);
  return {};
}

CommandResult query_roce_address(DriverState& driver, const Command& command) {
  const std::size_t index =
      command.input<query_roce_address_in>().get(query_roce_address_in::roce_address_index);
  if (index >= driver.limits().roce_address_table_size) {
    return refuse(Status::BAD_INDEX, kAddressSection, "the index is past the table");
  }
  const auto* entry = driver.rdma().gids().get(index);
  if (entry == nullptr) return {};
  const auto out =
      command.output<query_roce_address_out>().sub(query_roce_address_out::roce_address);
  std::ranges::copy(entry->gid.bytes, out.sub(roce_address::source_l3_address).begin());
  std::ranges::copy(entry->mac.bytes, out.sub(roce_address::source_mac).begin());
  if (entry->vlan_id) {
    out.set(roce_address::vlan_valid, 1);
    out.set(roce_address::vlan_id, *entry->vlan_id);
  }
  const auto l3 = entry->gid.is_ipv4() ? roce_l3_type::IPV4 : roce_l3_type::IPV6;
  out.set(roce_address::roce_l3_type, static_cast<std::uint32_t>(l3));
  const auto version = entry->roce_v2 ? roce_version::V2 : roce_version::V1;
  out.set(roce_address::roce_version, static_cast<std::uint32_t>(version));
  return {};
}

CommandResult attach_to_mcg(DriverState& driver, const Command& command) {
  const auto in = command.input<attach_to_mcg_in>();
  const auto* qp = driver.rdma().find_qp(Qpn(in.get(attach_to_mcg_in::qpn)));
  if (qp == nullptr) return refuse(Status::BAD_RESOURCE, kGroupSection, "unknown QPN");
  if (!qp->rdma_qp().service().datagram) {
    return refuse(Status::BAD_PARAM, kGroupSection, "only UD QPs take multicast");
  }
  const auto group = rdma::Gid::from(in.get(attach_to_mcg_in::multicast_gid));
  if (!group.is_multicast()) {
    return refuse(Status::BAD_PARAM, kGroupSection, "the GID is no multicast address");
  }
  // Attaching a QP twice changes nothing: it gets one copy of each packet of a group (IBTA 11.3.5).
  auto& groups = driver.rdma().transport().groups();
  const auto members = groups.members(group);
  if (std::ranges::find(members, rdma::Qpn(qp->qpn())) != members.end()) return {};
  if (members.empty() && groups.count() == Limits::count(driver.limits().log_max_mcg)) {
    return refuse(Status::EXCEED_LIM, kGroupSection, "groups above log_max_mcg");
  }
  if (members.size() == driver.limits().max_qp_mcg) {
    return refuse(Status::EXCEED_LIM, kGroupSection, "QPs of the group above max_qp_mcg");
  }
  (void)groups.attach(qp->qpn(), group);
  return {};
}

CommandResult detach_from_mcg(DriverState& driver, const Command& command) {
  const auto in = command.input<detach_from_mcg_in>();
  const rdma::Qpn qpn(in.get(detach_from_mcg_in::qpn));
  const auto group = rdma::Gid::from(in.get(detach_from_mcg_in::multicast_gid));
  if (!driver.rdma().transport().groups().detach(qpn, group)) {
    return refuse(Status::BAD_RESOURCE, kGroupSection, "the QP is not in this group");
  }
  return {};
}

}  // namespace softhca::connectx
