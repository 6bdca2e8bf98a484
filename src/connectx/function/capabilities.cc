#include "connectx/function/capabilities.h"

#include <algorithm>

#include "connectx/base/bar_layout.h"
#include "connectx/base/resources.h"
#include "connectx/command/init_segment.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/memory/memory_keys.h"
#include "connectx/port/vport.h"
#include "connectx/queue/work_queue.h"
#include "connectx/steering/flow_table.h"
#include "rdma/gid_table.h"

namespace softhca::connectx {

namespace {

using Cap = spec::connectx::hca_cap;
using EthCap = spec::connectx::eth_offload_cap;
using AtomicCap = spec::connectx::atomic_cap;
using RoceCap = spec::connectx::roce_cap;
using FlowCap = spec::connectx::flow_table_nic_cap;
using FlowProperties = spec::connectx::flow_table_properties;
using FlowFields = spec::connectx::flow_table_fields_supported;

/// Sizes and numbers of queues.
void fill_queues(util::MutableView<Cap> cap) {
  cap.set(Cap::log_max_srq_sz, 15);
  cap.set(Cap::log_max_qp_sz, 15);
  cap.set(Cap::log_max_qp, Resources::kLogMaxQueue);
  cap.set(Cap::log_max_srq, Resources::kLogMaxSrq);
  cap.set(Cap::log_max_cq_sz, 22);
  static_assert(CompletionQueues::kMax == 1u << 16);
  cap.set(Cap::log_max_cq, 16);
  cap.set(Cap::log_max_eq_sz, 22);
  static_assert(EventQueues::kMax == 1u << 7);
  cap.set(Cap::log_max_eq, 7);
  cap.set(Cap::log_max_mkey, MemoryKeys::kLogMaxMkey);
  cap.set(Cap::log_max_rq, 16);
  cap.set(Cap::log_max_sq, 16);
  cap.set(Cap::log_max_rmp, Resources::kLogMaxSrq);
  cap.set(Cap::log_max_tir, 12);
  cap.set(Cap::log_max_tis, 12);
  cap.set(Cap::log_max_tis_per_sq, 0);  // PRM Table 61: "only a single TIS is supported"
  cap.set(Cap::log_max_rqt, 12);
  cap.set(Cap::log_max_rqt_size, 11);
  cap.set(Cap::log_max_wq_sz, kLogWorkQueueMax);
  cap.set(Cap::log_max_stride_sz_rq, kLogReceiveStrideMax);
  cap.set(Cap::log_min_stride_sz_rq, kLogReceiveStrideMin);
  cap.set(Cap::log_max_stride_sz_sq, kLogSendStride);
  cap.set(Cap::log_min_stride_sz_sq, kLogSendStride);
  cap.set(Cap::basic_cyclic_rcv_wqe, 1);
  cap.set(Cap::max_wqe_sz_sq, 1024);  // less, and the netdev refuses to come up
  cap.set(Cap::max_wqe_sz_rq, 512);
  cap.set(Cap::max_wqe_sz_sq_dc, 512);
  cap.set(Cap::log_max_pd, Resources::kLogMaxPd);
  cap.set(Cap::log_max_xrcd, Resources::kLogMaxXrcd);
  cap.set(Cap::log_max_transport_domain, Resources::kLogMaxTransportDomain);
}

/// What the RDMA side does.
void fill_rdma(util::MutableView<Cap> cap) {
  cap.set(Cap::roce, 1);
  cap.set(Cap::atomic, 1);
  cap.set(Cap::rc, 1);
  cap.set(Cap::uc, 1);
  cap.set(Cap::ud, 1);
  cap.set(Cap::xrc, 1);  // without it mlx5_ib makes no device at all
  cap.set(Cap::cqe_version, 1);
  cap.set(Cap::fixed_buffer_size, 1);
  cap.set(Cap::log_max_mrw_sz, 64);
  cap.set(Cap::log_max_klm_list_size, 16);
  // Memory regions come whole with CREATE_MKEY: there are no UMR WQEs.
  cap.set(Cap::umr_modify_entity_size_disabled, 1);
  cap.set(Cap::umr_fence, 2);
  cap.set(Cap::log_max_msg, 30);
  cap.set(Cap::log_max_ra_req_qp, 4);
  cap.set(Cap::log_max_ra_res_qp, 4);
  cap.set(Cap::local_ca_ack_delay, 16);
  cap.set(Cap::gid_table_size, 5);
  cap.set(Cap::pkey_table_size, 0);  // code for 128
  cap.set(Cap::stat_rate_support, 1);
  cap.set(Cap::max_qp_mcg, 240);
  cap.set(Cap::log_max_mcg, 13);
  cap.set(Cap::block_lb_mc, 1);
  cap.set(Cap::qkv, 1);
  cap.set(Cap::pkv, 1);
  cap.set(Cap::max_qp_cnt, 255);  // counter sets; 0 hides all counters from users
  cap.set(Cap::out_of_seq_cnt, 1);
  cap.set(Cap::retransmission_q_counters, 1);
  cap.set(Cap::enhanced_error_q_counters, 1);
}

/// The function, its port, its doorbells.
void fill_function(util::MutableView<Cap> cap) {
  cap.set(Cap::port_type, static_cast<std::uint8_t>(spec::connectx::port_type::ETHERNET));
  cap.set(Cap::num_ports, 1);
  cap.set(Cap::eth_net_offloads, 1);
  cap.set(Cap::nic_flow_table, 1);
  cap.set(Cap::max_tc, 8);
  cap.set(Cap::vport_counters, 1);
  cap.set(Cap::cq_moderation, 1);
  cap.set(Cap::driver_version, 1);
  cap.set(Cap::fast_teardown, 1);
  cap.set(Cap::force_teardown, 1);
  cap.set(Cap::log_pg_sz, 12);
  cap.set(Cap::uar_sz, 5);  // 2^5 MiB of BAR
  static_assert(kBarSize == 1u << (20 + 5));
  // BlueFlame is off, but the register size is part of every doorbell's address.
  cap.set(Cap::log_bf_reg_size, 9);
  cap.set(Cap::num_of_uars_per_page, 1);
  cap.set(Cap::log_max_vlan_list, Vport::kLogMaxVlanList);
  cap.set(Cap::log_max_current_mc_list, Vport::kLogMaxMcList);
  cap.set(Cap::log_max_current_uc_list, Vport::kLogMaxUcList);
  cap.set(Cap::device_frequency_mhz, kDeviceFrequencyKhz / 1000);
  cap.set(Cap::device_frequency_khz, kDeviceFrequencyKhz);
}

void fill_ethernet(util::MutableView<EthCap> cap) {
  // Checksums, VLAN stripping, LSO and RSS: without any of them mlx5e makes no netdev.
  cap.set(EthCap::csum_cap, 1);
  cap.set(EthCap::vlan_cap, 1);
  cap.set(EthCap::wqe_vlan_insert, 1);
  cap.set(EthCap::max_lso_cap, 18);
  cap.set(EthCap::rss_ind_tbl_cap, 8);
  cap.set(EthCap::self_lb_en_modifiable, 1);
  cap.set(EthCap::wqe_inline_mode, 2);  // no inline headers are required
  cap.set(EthCap::cqe_checksum_full, 1);
}

/// What rules can match on.
void fill_match_fields(util::MutableView<FlowFields> fields) {
  fields.set(FlowFields::outer_dmac, 1);
  fields.set(FlowFields::outer_smac, 1);
  fields.set(FlowFields::outer_ether_type, 1);
  fields.set(FlowFields::outer_ip_version, 1);
  fields.set(FlowFields::outer_first_prio, 1);
  fields.set(FlowFields::outer_first_cfi, 1);
  fields.set(FlowFields::outer_first_vid, 1);
  fields.set(FlowFields::outer_sip, 1);
  fields.set(FlowFields::outer_dip, 1);
  fields.set(FlowFields::outer_ip_protocol, 1);
  fields.set(FlowFields::outer_udp_sport, 1);
  fields.set(FlowFields::outer_udp_dport, 1);
  fields.set(FlowFields::outer_tcp_sport, 1);
  fields.set(FlowFields::outer_tcp_dport, 1);
}

void fill_flow_tables(util::MutableView<FlowCap> cap) {
  const auto receive = cap.sub(FlowCap::flow_table_properties_nic_receive);
  receive.set(FlowProperties::ft_support, 1);
  receive.set(FlowProperties::modify_root, 1);
  // Drivers take tables from pools of 1, 128, 64 Ki entries and more, and give levels above 57.
  receive.set(FlowProperties::log_max_ft_size, 22);
  receive.set(FlowProperties::max_ft_level, 64);
  receive.set(FlowProperties::log_max_ft_num, FlowSteering::kLogTablesMax);
  receive.set(FlowProperties::log_max_destination, FlowSteering::kLogDestinationsMax);
  receive.set(FlowProperties::log_max_flow, FlowSteering::kLogFlowsMax);
  fill_match_fields(receive.sub(FlowProperties::ft_field_support));
  fill_match_fields(receive.sub(FlowProperties::ft_field_bitmask_support));
}

void fill_roce(util::MutableView<RoceCap> cap) {
  cap.set(RoceCap::sw_r_roce_src_udp_port, 1);
  cap.set(RoceCap::l3_type, 0b110);  // IPv4 and IPv6
  cap.set(RoceCap::roce_version, 1u << static_cast<unsigned>(spec::connectx::roce_version::V2));
  cap.set(RoceCap::r_roce_dest_udp_port, 4791);
  cap.set(RoceCap::r_roce_max_src_udp_port, 0xFFFF);
  cap.set(RoceCap::r_roce_min_src_udp_port, 0xC000);
  cap.set(RoceCap::roce_address_table_size, rdma::GidTable::kSize);
}

void fill_atomic(util::MutableView<AtomicCap> cap) {
  cap.set(AtomicCap::atomic_req_8B_endianness_mode, 1);
  cap.set(AtomicCap::supported_atomic_req_8B_endianness_mode_1, 1);
  cap.set(AtomicCap::atomic_operations, 0b11);  // compare and swap, fetch and add
  cap.set(AtomicCap::atomic_size_qp, 8);
}

constexpr std::string_view kSetSection = "PRM 12.3.4";

/// Copies the named fields of `image` to `current`. False, and nothing changed, if one is above
/// `maximum`.
template <class Layout, class... Fields>
bool take(std::span<const std::byte> image, std::span<const std::byte> maximum,
          std::span<std::byte> current, Fields... fields) {
  const util::View<Layout> wanted(image);
  const util::View<Layout> limit(maximum);
  if (((wanted.get(fields) > limit.get(fields)) || ...)) return false;
  const util::MutableView<Layout> to(current);
  (to.set(fields, wanted.get(fields)), ...);
  return true;
}

bool take_writable(Capabilities::Type type, std::span<const std::byte> image,
                   std::span<const std::byte> maximum, std::span<std::byte> current) {
  using Type = Capabilities::Type;
  switch (type) {
    case Type::GENERAL:
      return take<Cap>(image, maximum, current, Cap::pkey_table_size, Cap::log_max_qp,
                       Cap::log_max_sq, Cap::cmdif_checksum, Cap::cache_line_128byte,
                       Cap::log_uar_page_sz);
    case Type::ATOMIC:
      return take<AtomicCap>(image, maximum, current, AtomicCap::atomic_req_8B_endianness_mode);
    case Type::ROCE:
      return take<RoceCap>(image, maximum, current, RoceCap::sw_r_roce_src_udp_port);
    default:
      return true;  // nothing in this group is writable
  }
}

}  // namespace

Capabilities::Capabilities() {
  constexpr std::array kTypes{Type::GENERAL, Type::ETHERNET_OFFLOADS, Type::ATOMIC, Type::ROCE,
                              Type::FLOW_TABLE_NIC};
  static_assert(kTypes.size() == std::tuple_size_v<decltype(groups_)>);
  for (std::size_t i = 0; i < kTypes.size(); ++i) groups_[i].type = kTypes[i];
  const util::MutableView<Cap> cap(groups_[0].maximum);
  fill_queues(cap);
  fill_rdma(cap);
  fill_function(cap);
  fill_ethernet(util::MutableView<EthCap>(groups_[1].maximum));
  fill_atomic(util::MutableView<AtomicCap>(groups_[2].maximum));
  fill_roce(util::MutableView<RoceCap>(groups_[3].maximum));
  fill_flow_tables(util::MutableView<FlowCap>(groups_[4].maximum));
  reset();
}

void Capabilities::reset() {
  for (auto& group : groups_) group.current = group.maximum;
  // These are off until a driver asks for them.
  util::MutableView<AtomicCap>(groups_[2].current).set(AtomicCap::atomic_req_8B_endianness_mode, 0);
  util::MutableView<RoceCap>(groups_[3].current).set(RoceCap::sw_r_roce_src_udp_port, 0);
}

const Capabilities::Group* Capabilities::find(Type type) const {
  const auto at = std::find_if(groups_.begin(), groups_.end(),
                               [&](const Group& group) { return group.type == type; });
  return at == groups_.end() ? nullptr : &*at;
}

std::span<const std::byte> Capabilities::maximum(Type type) const {
  const auto* group = find(type);
  return group == nullptr ? std::span<const std::byte>() : group->maximum;
}

std::span<const std::byte> Capabilities::current(Type type) const {
  const auto* group = find(type);
  return group == nullptr ? std::span<const std::byte>() : group->current;
}

CommandResult Capabilities::set(Type type, std::span<const std::byte> image) {
  const auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.type == type; });
  if (group == groups_.end()) {
    return refuse(Status::BAD_OP, kSetSection, "no such group of capabilities");
  }
  if (!take_writable(type, image, group->maximum, group->current)) {
    return refuse(Status::EXCEED_LIM, kSetSection, "a capability above the device's maximum");
  }
  return {};
}

}  // namespace softhca::connectx
