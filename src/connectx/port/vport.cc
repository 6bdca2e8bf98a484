#include "connectx/port/vport.h"

#include <algorithm>

namespace softhca::connectx {

namespace {

using VportContext = spec::connectx::nic_vport_context;
using Select = spec::connectx::modify_nic_vport_field_select;
using MacEntry = spec::connectx::mac_address;
using VlanEntry = spec::connectx::vlan_entry;
using ListType = spec::connectx::allowed_list_type;

constexpr std::string_view kModify = "PRM 12.16.4";

rdma::Mac read_mac(util::View<MacEntry> entry) {
  return rdma::Mac::from(entry.get(MacEntry::mac_addr));
}

void write_mac(util::MutableView<MacEntry> entry, const rdma::Mac& mac) {
  std::ranges::copy(mac.bytes, entry.sub(MacEntry::mac_addr).begin());
}

std::size_t list_limit(const Limits& limits, ListType type) {
  switch (type) {
    case ListType::CURRENT_UC_MAC_ADDRESS:
      return Limits::count(limits.log_max_current_uc_list);
    case ListType::CURRENT_MC_MAC_ADDRESS:
      return Limits::count(limits.log_max_current_mc_list);
    case ListType::VLAN_LIST:
      return Limits::count(limits.log_max_vlan_list);
  }
  return 0;
}

}  // namespace

Vport::Vport(const rdma::Mac& mac, std::uint64_t node_guid, NetworkPort& port, const Limits& limits)
    : port_(port),
      limits_(limits),
      mac_(mac),
      node_guid_(node_guid),
      port_guid_(node_guid),
      system_image_guid_(node_guid) {
  report_addresses();
}

void Vport::report_addresses() {
  auto addresses = uc_list_;
  addresses.push_back(mac_);
  port_.set_vport_addresses(addresses);
}

void Vport::set_admin_up(bool up) {
  admin_up_ = up;
  port_.state().set_vport_up(up);
}

void Vport::write_context(util::MutableView<VportContext> context, std::span<std::byte> list,
                          ListType type) const {
  context.set(VportContext::min_wqe_inline_mode, min_inline_mode_);
  context.set(VportContext::roce_en, roce_enabled_);
  context.set(VportContext::mtu, mtu_);
  context.set(VportContext::system_image_guid, system_image_guid_);
  context.set(VportContext::port_guid, port_guid_);
  context.set(VportContext::node_guid, node_guid_);
  context.set(VportContext::promisc_uc, promisc_uc_);
  context.set(VportContext::promisc_mc, promisc_mc_);
  context.set(VportContext::promisc_all, promisc_all_);
  write_mac(context.sub(VportContext::permanent_address), mac_);

  static_assert(MacEntry::kSize == VlanEntry::kSize);
  const auto room = list.size() / MacEntry::kSize;
  const auto at = [&](std::size_t i) { return list.subspan(i * MacEntry::kSize, MacEntry::kSize); };
  std::size_t count = 0;
  if (type == ListType::VLAN_LIST) {
    for (; count < std::min(room, vlan_list_.size()); ++count) {
      util::MutableView<VlanEntry>(at(count)).set(VlanEntry::vlan, vlan_list_[count]);
    }
  } else {
    const auto& macs = type == ListType::CURRENT_UC_MAC_ADDRESS ? uc_list_ : mc_list_;
    for (; count < std::min(room, macs.size()); ++count) {
      write_mac(util::MutableView<MacEntry>(at(count)), macs[count]);
    }
  }
  context.set(VportContext::allowed_list_type, static_cast<std::uint8_t>(type));
  // The field has 12 bits, but a full VLAN list has one entry more than it can hold.
  context.set(VportContext::allowed_list_size, static_cast<std::uint32_t>(std::min<std::size_t>(
                                                   count, VportContext::allowed_list_size.kMax)));
}

CommandResult Vport::set_list(util::View<VportContext> context, std::span<const std::byte> list) {
  const auto type = static_cast<ListType>(context.get(VportContext::allowed_list_type));
  const std::size_t count = context.get(VportContext::allowed_list_size);
  if (type > ListType::VLAN_LIST) {
    return refuse(Status::BAD_PARAM, kModify, "no such allowed_list_type");
  }
  if (count > list_limit(limits_, type)) {
    return refuse(Status::EXCEED_LIM, kModify, "allowed_list_size above the capability");
  }
  if (list.size() < count * MacEntry::kSize) {
    return refuse(Status::BAD_INPUT_LEN, kModify, "list shorter than allowed_list_size");
  }
  const auto at = [&](std::size_t i) { return list.subspan(i * MacEntry::kSize, MacEntry::kSize); };
  if (type == ListType::VLAN_LIST) {
    vlan_list_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      const auto vlan = util::View<VlanEntry>(at(i)).get(VlanEntry::vlan);
      vlan_list_.push_back(static_cast<std::uint16_t>(vlan));
    }
    return {};
  }
  auto& macs = type == ListType::CURRENT_UC_MAC_ADDRESS ? uc_list_ : mc_list_;
  macs.clear();
  for (std::size_t i = 0; i < count; ++i) macs.push_back(read_mac(util::View<MacEntry>(at(i))));
  return {};
}

CommandResult Vport::modify(util::View<Select> select, util::View<VportContext> context,
                            std::span<const std::byte> list) {
  if (has_unknown_bits(select, Select::affiliation, Select::disable_uc_local_lb,
                       Select::disable_mc_local_lb, Select::node_guid, Select::port_guid,
                       Select::min_inline, Select::mtu, Select::change_event, Select::promisc,
                       Select::permanent_address, Select::addresses_list, Select::roce_en)) {
    return refuse(Status::BAD_PARAM, kModify, "field_select has unknown bits");
  }
  if (select.get(Select::mtu) != 0 && context.get(VportContext::mtu) > NetworkPort::kMaxMtu) {
    return refuse(Status::BAD_PARAM, kModify, "mtu above the port's maximum");
  }
  if (select.get(Select::affiliation) != 0) {
    return refuse(Status::BAD_PARAM, kModify, "affiliation needs a second port");
  }
  if (select.get(Select::min_inline) != 0 &&
      !is_inline_mode(context.get(VportContext::min_wqe_inline_mode))) {
    return refuse(Status::BAD_PARAM, kModify, "min_wqe_inline_mode 4 is reserved");
  }
  // The list is the last check that can fail.
  if (select.get(Select::addresses_list) != 0) {
    if (auto result = set_list(context, list); !result) return result;
  }
  if (select.get(Select::roce_en) != 0) roce_enabled_ = context.get(VportContext::roce_en) != 0;
  if (select.get(Select::permanent_address) != 0) {
    mac_ = read_mac(context.get(VportContext::permanent_address));
  }
  if (select.get(Select::promisc) != 0) {
    promisc_uc_ = context.get(VportContext::promisc_uc) != 0;
    promisc_mc_ = context.get(VportContext::promisc_mc) != 0;
    promisc_all_ = context.get(VportContext::promisc_all) != 0;
  }
  if (select.get(Select::mtu) != 0) {
    mtu_ = static_cast<std::uint16_t>(context.get(VportContext::mtu));
    port_.state().set_vport_mtu(mtu_);
  }
  if (select.get(Select::min_inline) != 0) {
    min_inline_mode_ = static_cast<std::uint8_t>(context.get(VportContext::min_wqe_inline_mode));
  }
  if (select.get(Select::port_guid) != 0) port_guid_ = context.get(VportContext::port_guid);
  if (select.get(Select::node_guid) != 0) node_guid_ = context.get(VportContext::node_guid);
  report_addresses();
  return {};
}

}  // namespace softhca::connectx
