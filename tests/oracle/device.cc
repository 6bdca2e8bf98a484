// Chapter device: the attributes of a device and its port that a program reads, field by field.
#include <endian.h>

#include <algorithm>
#include <cstring>

#include "world.h"

namespace oracle {
namespace {

#define FIELD(of, name) number(#name, static_cast<long long>((of).name))

void plain(const ibv_device_attr& all) {
  line("fw_ver", all.fw_ver);
  line("guid", all.node_guid == all.sys_image_guid ? "node is system image" : "differ");
  FIELD(all, max_mr_size);
  FIELD(all, page_size_cap);
  FIELD(all, vendor_id);
  FIELD(all, vendor_part_id);
  FIELD(all, hw_ver);
  FIELD(all, max_qp);
  FIELD(all, max_qp_wr);
  FIELD(all, device_cap_flags);
  FIELD(all, max_sge);
  FIELD(all, max_sge_rd);
  FIELD(all, max_cq);
  FIELD(all, max_cqe);
  FIELD(all, max_mr);
  FIELD(all, max_pd);
  FIELD(all, max_qp_rd_atom);
  FIELD(all, max_ee_rd_atom);
  FIELD(all, max_res_rd_atom);
  FIELD(all, max_qp_init_rd_atom);
  FIELD(all, max_ee_init_rd_atom);
  FIELD(all, atomic_cap);
  FIELD(all, max_ee);
  FIELD(all, max_rdd);
  FIELD(all, max_mw);
  FIELD(all, max_raw_ipv6_qp);
  FIELD(all, max_raw_ethy_qp);
  FIELD(all, max_mcast_grp);
  FIELD(all, max_mcast_qp_attach);
  FIELD(all, max_total_mcast_qp_attach);
  FIELD(all, max_ah);
  FIELD(all, max_fmr);
  FIELD(all, max_map_per_fmr);
  FIELD(all, max_srq);
  FIELD(all, max_srq_wr);
  FIELD(all, max_srq_sge);
  FIELD(all, max_pkeys);
  FIELD(all, local_ca_ack_delay);
  FIELD(all, phys_port_cnt);
}

void extended(const ibv_device_attr_ex& all) {
  FIELD(all, comp_mask);
  FIELD(all, odp_caps.general_caps);
  FIELD(all, odp_caps.per_transport_caps.rc_odp_caps);
  FIELD(all, odp_caps.per_transport_caps.uc_odp_caps);
  FIELD(all, odp_caps.per_transport_caps.ud_odp_caps);
  FIELD(all, xrc_odp_caps);
  FIELD(all, completion_timestamp_mask);
  FIELD(all, hca_core_clock);
  FIELD(all, device_cap_flags_ex);
  FIELD(all, tso_caps.max_tso);
  FIELD(all, tso_caps.supported_qpts);
  FIELD(all, rss_caps.supported_qpts);
  FIELD(all, rss_caps.max_rwq_indirection_tables);
  FIELD(all, rss_caps.max_rwq_indirection_table_size);
  FIELD(all, rss_caps.rx_hash_fields_mask);
  FIELD(all, rss_caps.rx_hash_function);
  FIELD(all, max_wq_type_rq);
  FIELD(all, packet_pacing_caps.qp_rate_limit_min);
  FIELD(all, packet_pacing_caps.qp_rate_limit_max);
  FIELD(all, packet_pacing_caps.supported_qpts);
  FIELD(all, raw_packet_caps);
  FIELD(all, tm_caps.max_rndv_hdr_size);
  FIELD(all, tm_caps.max_num_tags);
  FIELD(all, tm_caps.flags);
  FIELD(all, tm_caps.max_ops);
  FIELD(all, tm_caps.max_sge);
  FIELD(all, cq_mod_caps.max_cq_count);
  FIELD(all, cq_mod_caps.max_cq_period);
  FIELD(all, max_dm_size);
  FIELD(all, pci_atomic_caps.fetch_add);
  FIELD(all, pci_atomic_caps.swap);
  FIELD(all, pci_atomic_caps.compare_swap);
  FIELD(all, phys_port_cnt_ex);
}

void port_fields(const ibv_port_attr& all) {
  FIELD(all, state);
  FIELD(all, max_mtu);
  FIELD(all, active_mtu);
  FIELD(all, gid_tbl_len);
  FIELD(all, port_cap_flags);
  FIELD(all, max_msg_sz);
  FIELD(all, bad_pkey_cntr);
  FIELD(all, qkey_viol_cntr);
  FIELD(all, pkey_tbl_len);
  FIELD(all, lid);
  FIELD(all, sm_lid);
  FIELD(all, lmc);
  FIELD(all, max_vl_num);
  FIELD(all, sm_sl);
  FIELD(all, subnet_timeout);
  FIELD(all, init_type_reply);
  FIELD(all, active_width);
  FIELD(all, active_speed);
  FIELD(all, phys_state);
  FIELD(all, link_layer);
  FIELD(all, flags);
  FIELD(all, port_cap_flags2);
}

/// The kind of address, not the address.
std::string gid_sort(const ibv_gid& gid) {
  constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};
  if (std::all_of(gid.raw, gid.raw + 16, [](std::uint8_t one) { return one == 0; })) return "zero";
  if (std::equal(mapped.begin(), mapped.end(), gid.raw)) return "IPv4";
  return gid.raw[0] == 0xfe ? "link-local" : "IPv6";
}

void provider(const mlx5dv_context& all) {
  FIELD(all, version);
  FIELD(all, flags);
  FIELD(all, comp_mask);
  FIELD(all, cqe_comp_caps.max_num);
  FIELD(all, cqe_comp_caps.supported_format);
  FIELD(all, sw_parsing_caps.sw_parsing_offloads);
  FIELD(all, sw_parsing_caps.supported_qpts);
  FIELD(all, striding_rq_caps.min_single_stride_log_num_of_bytes);
  FIELD(all, striding_rq_caps.max_single_stride_log_num_of_bytes);
  FIELD(all, striding_rq_caps.min_single_wqe_log_num_of_strides);
  FIELD(all, striding_rq_caps.max_single_wqe_log_num_of_strides);
  FIELD(all, striding_rq_caps.supported_qpts);
  FIELD(all, tunnel_offloads_caps);
  FIELD(all, max_dynamic_bfregs);
  FIELD(all, max_clock_info_update_nsec);
  FIELD(all, flow_action_flags);
  FIELD(all, dc_odp_caps);
  FIELD(all, num_lag_ports);
  FIELD(all, sig_caps.block_size);
  FIELD(all, sig_caps.block_prot);
  FIELD(all, sig_caps.t10dif_bg);
  FIELD(all, sig_caps.crc_type);
  FIELD(all, dci_streams_caps.max_log_num_concurent);
  FIELD(all, max_wr_memcpy_length);
  FIELD(all, crypto_caps.failed_selftests);
  FIELD(all, crypto_caps.crypto_engines);
  FIELD(all, crypto_caps.wrapped_import_method);
  FIELD(all, crypto_caps.flags);
}

}  // namespace

ORACLE_CASE(device, list) {
  int count = -1;
  auto** const list = made("list", [&] { return ibv_get_device_list(&count); });
  number("count", count);
  for (int i = 0; i < count; ++i) {
    line("name", ibv_get_device_name(list[i]));
    number("index", ibv_get_device_index(list[i]));
    line("GUID", ibv_get_device_guid(list[i]) != 0 ? "there" : "zero");
    number("node type", list[i]->node_type);
    number("transport", list[i]->transport_type);
    line("file", list[i]->dev_name);
    line("mlx5", mlx5dv_is_supported(list[i]) ? "yes" : "no");
  }
  ibv_free_device_list(list);
}
ORACLE_CASE(device, attributes) {
  ibv_device_attr all{};
  auto* const context = open_device();
  if (did("query", [&] { return ibv_query_device(context, &all); }) == 0) plain(all);
}
ORACLE_CASE(device, attributes_ex) {
  ibv_device_attr_ex all{};
  ibv_query_device_ex_input in{};
  auto* const context = open_device();
  if (did("query", [&] { return ibv_query_device_ex(context, nullptr, &all); }) == 0) extended(all);
  for (const unsigned mask : {1u, 2u, 0x80000000u}) {
    in.comp_mask = mask;
    did(text("comp_mask 0x%x", mask), [&] { return ibv_query_device_ex(context, &in, &all); });
  }
}
ORACLE_CASE(device, other) {
  ibv_device_attr all{};
  if (ibv_query_device(open_device(1), &all) == 0) plain(all);
}
ORACLE_CASE(device, port) {
  auto* const context = open_device();
  for (const int number : {1, 0, 2, 255}) {
    ibv_port_attr all{};
    const auto name = text("query port %d", number);
    if (did(name, [&] { return ibv_query_port(context, number, &all); }) == 0) port_fields(all);
  }
}
ORACLE_CASE(device, gids) {
  auto* const context = open_device();
  for (int index = 0; index != 260; ++index) {
    ibv_gid gid{};
    errno = 0;
    const int returned = ibv_query_gid(context, 1, index, &gid);
    line(text("GID %d", index), outcome(returned, errno) + ", " + gid_sort(gid));
  }
  ibv_gid gid{};
  did("index -1", [&] { return ibv_query_gid(context, 1, -1, &gid); });
  did("port 2", [&] { return ibv_query_gid(context, 2, 0, &gid); });
}
ORACLE_CASE(device, gid_entries) {
  auto* const context = open_device();
  for (const int index : {0, 1, 2, 3, 4, 254, 255, 256}) {
    ibv_gid_entry entry{};
    const auto name = text("entry %d", index);
    if (did(name, [&] { return ibv_query_gid_ex(context, 1, index, &entry, 0); }) != 0) continue;
    line(name, text("%s, index %u, port %u, type %u, interface %s", gid_sort(entry.gid).c_str(),
                    entry.gid_index, entry.port_num, entry.gid_type,
                    entry.ndev_ifindex != 0 ? "there" : "0"));
  }
  ibv_gid_entry entries[8]{};
  for (int flag = 0; flag != 4; ++flag) {
    did(text("entry, flags %d", flag),
        [&] { return ibv_query_gid_ex(context, 1, 3, entries, flag); });
    errno = 0;
    const auto got = ibv_query_gid_table(context, entries, 8, flag);
    line(text("table, flags %d", flag), text("%zd %s", got, error_name(errno).c_str()));
  }
  for (const int most : {0, 1, 3, 4}) {
    errno = 0;
    const auto got = ibv_query_gid_table(context, entries, most, 0);
    line(text("table of %d", most), text("%zd %s", got, error_name(errno).c_str()));
  }
}
ORACLE_CASE(device, pkeys) {
  auto* const context = open_device();
  for (int index = -1; index != 132; ++index) {
    __be16 key = 0;
    errno = 0;
    const int returned = ibv_query_pkey(context, 1, index, &key);
    line(text("key %d", index), outcome(returned, errno) + text(", 0x%x", be16toh(key)));
    const auto back = ibv_get_pkey_index(context, 1, key);
    number(text("index of key %d", index), back);
  }
}
ORACLE_CASE(device, provider) {
  auto* const context = open_device();
  mlx5dv_context all{};
  if (did("plain", [&] { return mlx5dv_query_device(context, &all); }) == 0) provider(all);
  all = {};
  all.comp_mask = ~0ull;
  if (did("everything", [&] { return mlx5dv_query_device(context, &all); }) == 0) provider(all);
  for (int bit = 0; bit != 14; ++bit) {
    all = {};
    all.comp_mask = 1ull << bit;
    did(text("bit %d", bit), [&] { return mlx5dv_query_device(context, &all); });
    number(text("mask of bit %d", bit), static_cast<long long>(all.comp_mask));
  }
  errno = 0;
  mlx5dv_port dv{};
  did("port", [&] { return mlx5dv_query_port(context, 1, &dv); });
  number("port flags", static_cast<long long>(dv.flags));
  did("port 2", [&] { return mlx5dv_query_port(context, 2, &dv); });
}
ORACLE_CASE(device, clock) {
  auto* const context = open_device();
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  did("raw clock", [&] { return ibv_query_rt_values_ex(context, &values); });
  number("mask", values.comp_mask);
  line("clock", values.raw_clock.tv_nsec != 0 ? "moves" : "zero");
  for (const unsigned mask : {0u, 2u, 3u}) {
    values.comp_mask = mask;
    did(text("mask %u", mask), [&] { return ibv_query_rt_values_ex(context, &values); });
    number("its mask", values.comp_mask);
  }
  mlx5dv_clock_info info{};
  did("clock info", [&] { return mlx5dv_get_clock_info(context, &info); });
}
ORACLE_CASE(device, context) {
  auto* const context = open_device();
  number("vectors", context->num_comp_vectors);
  line("device", ibv_get_device_name(context->device));
  did("cq_ex", [&] { return context->async_fd < 0 ? -1 : 0; });
  mlx5dv_context_attr attr{};
  for (int bit = 0; bit != 4; ++bit) {
    attr.flags = bit == 0 ? 0 : 1u << (bit - 1);
    auto* const other = made(text("flags %u", attr.flags),
                             [&] { return mlx5dv_open_device(context->device, &attr); });
    if (other != nullptr) did("close", [&] { return ibv_close_device(other); });
  }
  did("close", [&] { return ibv_close_device(context); });
}

}  // namespace oracle
