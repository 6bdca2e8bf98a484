// The attributes of the device (kernel interface 4.2).
#include <rdma/mlx5-abi.h>

#include <climits>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include "spec/connectx/caps.h"
#include "uverbs/abi.h"
#include "uverbs/device_commands.h"
#include "uverbs/device_flags.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using spec::hca_cap;

namespace {

/// ib_raw_packet_caps: VLAN stripping and checksum offload.
constexpr std::uint32_t kRawPackets = 1u << 0 | 1u << 2;
/// IB_ODP_SUPPORT, and IB_ODP_SUPPORT_IMPLICIT, which needs indirect keys.
constexpr std::uint64_t kOnDemandSupport = 1, kOnDemandImplicit = 2;
/// ib_odp_transport_cap_bits: all of RC's, and the send of UD. mlx5_ib reports none for UC.
constexpr std::uint32_t kOnDemandRc = 0x3f, kOnDemandUd = 0x1;

/// mlx5_rx_hash_fields: IPv4 and IPv6 addresses, TCP and UDP ports.
constexpr std::uint64_t kHashFields = 0xff | MLX5_RX_HASH_INNER;

/// mlx5_ib_calc_max_qp_wr: blocks of the largest WQE with one scatter entry and no inline data. It
/// is a window bind of an XRC initiator.
constexpr std::uint32_t kBlocksMax = 4;
constexpr std::uint32_t kScatterEntry = 16;

std::uint64_t firmware_number(const std::string& text) {
  unsigned major = 0, minor = 0, sub = 0;
  std::sscanf(text.c_str(), "%u.%u.%u", &major, &minor, &sub);
  return std::uint64_t{major} << 32 | minor << 16 | sub;  // no format: mlx5_ib's own packing
}

ib_uverbs_query_device_resp describe(Device& device) {
  const auto caps = device.capabilities();
  const auto count = [&](auto field) { return 1u << caps.get(field); };
  ib_uverbs_query_device_resp out{};
  out.fw_ver = firmware_number(device.hca().firmware_version());
  out.node_guid = out.sys_image_guid = __builtin_bswap64(device.options().node_guid);
  out.max_mr_size = UINT64_MAX;
  out.page_size_cap = ~std::uint64_t{0xfff};
  out.vendor_id = 0x02c9;  // as QUERY_ADAPTER reports it: the IEEE number, not PCI's
  out.vendor_part_id = 4115;
  out.max_qp = count(hca_cap::log_max_qp);
  out.max_qp_wr = count(hca_cap::log_max_qp_sz) / kBlocksMax;
  out.device_cap_flags = kDeviceFlags;
  out.max_sge = 30;
  out.max_sge_rd = 30;
  out.max_cq = count(hca_cap::log_max_cq);
  out.max_cqe = count(hca_cap::log_max_cq_sz) - 1;
  out.max_mr = count(hca_cap::log_max_mkey);
  out.max_pd = count(hca_cap::log_max_pd);
  out.max_qp_rd_atom = count(hca_cap::log_max_ra_req_qp);
  out.max_qp_init_rd_atom = count(hca_cap::log_max_ra_res_qp);
  out.max_res_rd_atom = out.max_qp_rd_atom * out.max_qp;
  out.atomic_cap = 1;  // within this HCA
  out.max_ah = INT_MAX;
  out.max_mw = out.max_mr;
  out.max_srq = count(hca_cap::log_max_rmp);
  out.max_srq_wr = count(hca_cap::log_max_srq_sz) - 1;
  out.max_srq_sge = caps.get(hca_cap::max_wqe_sz_rq) / kScatterEntry - 1;
  out.max_mcast_grp = count(hca_cap::log_max_mcg);
  out.max_mcast_qp_attach = caps.get(hca_cap::max_qp_mcg);
  out.max_total_mcast_qp_attach = out.max_mcast_grp * out.max_mcast_qp_attach;
  out.max_pkeys = static_cast<std::uint16_t>(kPkeysMin << caps.get(hca_cap::pkey_table_size));
  out.local_ca_ack_delay = static_cast<std::uint8_t>(caps.get(hca_cap::local_ca_ack_delay));
  out.phys_port_cnt = 1;
  return out;
}

}  // namespace

Errno DeviceCommands::query_device(Request& request) {
  return request.put(kCoreOut, describe(file_.device));
}

Errno DeviceCommands::query_device_extended(Request& request) {
  ib_uverbs_ex_query_device_resp out{};
  out.base = describe(file_.device);
  const auto caps = file_.device.capabilities();
  const auto count = [&](auto field) { return 1u << caps.get(field); };
  out.response_length = sizeof out;
  out.timestamp_mask = INT64_MAX;
  out.hca_core_clock = file_.device.capabilities().get(hca_cap::device_frequency_khz);
  out.device_cap_flags_ex = out.base.device_cap_flags;
  out.odp_caps.general_caps = kOnDemandSupport | kOnDemandImplicit;
  out.odp_caps.per_transport_caps = {
      .rc_odp_caps = kOnDemandRc, .uc_odp_caps = 0, .ud_odp_caps = kOnDemandUd};
  out.xrc_odp_caps = kOnDemandRc;
  out.raw_packet_caps = kRawPackets;
  out.rss_caps.supported_qpts = 1u << IB_UVERBS_QPT_RAW_PACKET;
  out.rss_caps.max_rwq_indirection_tables = count(hca_cap::log_max_rqt);
  out.rss_caps.max_rwq_indirection_table_size = count(hca_cap::log_max_rqt_size);
  out.max_wq_type_rq = count(hca_cap::log_max_rq);
  out.cq_moderation_caps = {
      .max_cq_moderation_count = 0xffff, .max_cq_moderation_period = 0xfff, .reserved = 0};
  if (const auto wrong = request.put(kCoreOut, out); wrong != 0) return wrong;
  mlx5_ib_query_device_resp own{};
  own.response_length = offsetof(mlx5_ib_query_device_resp, sw_parsing_caps);
  if (caps.get(hca_cap::cqe_128_always) != 0) {
    own.flags |= MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD;
  }
  own.flags |= MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT;
  if (const auto log_max = file_.device.log_max_tso(); log_max != 0) {
    own.tso_caps.max_tso = 1u << log_max;
    own.tso_caps.supported_qpts = 1u << IB_UVERBS_QPT_RAW_PACKET;
  }
  if (caps.get(hca_cap::cqe_compression) != 0) {
    own.cqe_comp_caps.max_num = caps.get(hca_cap::cqe_compression_max_num);
    own.cqe_comp_caps.supported_format = MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM;
  }
  own.rss_caps.rx_hash_fields_mask = kHashFields;
  own.rss_caps.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ;
  const auto bytes = std::as_bytes(std::span(&own, 1));
  return request.put_bytes(UVERBS_ATTR_UHW_OUT, bytes.first(own.response_length));
}

}  // namespace softhca::uverbs
