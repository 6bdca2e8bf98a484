#include "uverbs/port_commands.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "spec/connectx/caps.h"
#include "uverbs/abi.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using spec::hca_cap;

namespace {

using namespace rules;

constexpr AttributeRule kQueryPort[] = {const_in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1),
                                        out(UVERBS_ATTR_QUERY_PORT_RESP, 40)};
constexpr AttributeRule kQueryDevicePort[] = {value_in(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, 4),
                                              out(MLX5_IB_ATTR_QUERY_PORT, 8)};
constexpr AttributeRule kQueryGidTable[] = {
    const_in(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 8),
    flags_in(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS), out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, 0),
    value_out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8)};
constexpr AttributeRule kQueryGidEntry[] = {const_in(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 4),
                                            const_in(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 4),
                                            flags_in(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS),
                                            out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, 0)};

constexpr std::uint32_t kGids = 256;
/// The largest size of a GID entry that a program may name.
constexpr std::uint64_t kEntryMax = 4096;

}  // namespace

std::span<const Method<PortCommands>> PortCommands::methods() {
  static constexpr Method<PortCommands> kMethods[] = {
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, kQueryPort, &PortCommands::query_port},
      {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, kQueryDevicePort,
       &PortCommands::query_device_port},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, kQueryGidTable,
       &PortCommands::query_gid_table},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, kQueryGidEntry,
       &PortCommands::query_gid_entry},
  };
  return kMethods;
}

Errno PortCommands::query_port(Request& request) {
  if (request.get<std::uint8_t>(UVERBS_ATTR_QUERY_PORT_PORT_NUM) != kPort1) return EINVAL;
  const auto up = file_.device.hca().link_is_up();
  ib_uverbs_query_port_resp_ex out{};
  auto& port = out.legacy_resp;
  port.flags = IB_UVERBS_QPF_GRH_REQUIRED;
  port.port_cap_flags = 0x04010000;  // CM_SUP, IP_BASED_GIDS
  port.max_msg_sz = 1u << file_.device.capabilities().get(hca_cap::log_max_msg);
  port.gid_tbl_len = kGids;
  port.qkey_viol_cntr = file_.device.hca().qkey_violations().value_or(0);
  port.pkey_tbl_len = 1;
  const bool active = up.value_or(false);
  port.state = active ? 4 : 1;
  port.max_mtu = kMtu4096;
  port.active_mtu = file_.device.active_mtu();
  port.active_width = 2;   // 4X
  port.active_speed = 32;  // EDR
  port.phys_state = active ? 5 : 3;
  port.link_layer = 2;  // Ethernet
  return request.put(UVERBS_ATTR_QUERY_PORT_RESP, out);
}

/// The driver's part of a port of an e-switch. This port belongs to none, so the answer is empty.
Errno PortCommands::query_device_port(Request& request) {
  if (request.get<std::uint32_t>(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM) != kPort1) return EINVAL;
  return request.put(MLX5_IB_ATTR_QUERY_PORT, mlx5_ib_uapi_query_port{});
}

namespace {

ib_uverbs_gid_entry describe(const GidEntry& entry, std::uint32_t index, unsigned interface) {
  ib_uverbs_gid_entry out{};
  std::memcpy(out.gid, entry.gid.bytes.data(), sizeof out.gid);
  out.gid_index = index;
  out.port_num = kPort1;
  out.gid_type = entry.roce_v2 ? IB_UVERBS_GID_TYPE_ROCE_V2 : IB_UVERBS_GID_TYPE_ROCE_V1;
  out.netdev_ifindex = interface;
  return out;
}

}  // namespace

Errno PortCommands::query_gid_table(Request& request) {
  const auto size = request.get<std::uint64_t>(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
  if (request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS) != 0) return EINVAL;
  if (size == 0 || size > kEntryMax) return EINVAL;
  const auto room = request.size(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES) / size;
  std::vector<std::byte> all;
  std::uint64_t count = 0;
  for (std::uint32_t i = 0; i != file_.device.gids_end(); ++i) {
    if (file_.device.gid(i) == nullptr) continue;
    if (count++ == room) return EINVAL;
    const auto entry = describe(*file_.device.gid(i), i, file_.device.options().interface_index);
    all.resize(all.size() + size);
    std::memcpy(all.data() + all.size() - size, &entry, std::min<std::size_t>(size, sizeof entry));
  }
  if (const auto wrong = request.put_bytes(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, all);
      wrong != 0) {
    return wrong;
  }
  return request.put(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
}

Errno PortCommands::query_gid_entry(Request& request) {
  const auto index = request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
  if (request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS) != 0) return EINVAL;
  if (request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_PORT) != kPort1 || index >= kGids) {
    return EINVAL;
  }
  const auto* entry = file_.device.gid(index);
  if (entry == nullptr) return ENODATA;
  return request.put(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                     describe(*entry, index, file_.device.options().interface_index));
}

}  // namespace softhca::uverbs
