// Methods of the device as a whole (kernel interface 4.1, 4.3, 4.4, 4.13, 4.14).
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "spec/connectx/caps.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/resources.h"
#include "uverbs/abi.h"
#include "uverbs/context.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using spec::hca_cap;

namespace {

constexpr std::uint64_t kOptionalAccessFlags = 1;
constexpr std::uint8_t kPort = 1;
constexpr std::uint32_t kGids = 256;
/// The largest size of a GID entry that a program may name.
constexpr std::uint64_t kEntryMax = 4096;

/// The MKey that reads as zeros and discards writes, which libmlx5 uses for ibv_alloc_null_mr(). 0:
/// the device has none.
std::uint32_t dump_fill_key(Device& device) {
  using Out = spec::query_special_contexts_out;
  if (device.capabilities().get(hca_cap::dump_fill_mkey) == 0) return 0;
  const driver::connectx::Request<spec::query_special_contexts_in> in(
      spec::command_opcode::QUERY_SPECIAL_CONTEXTS);
  const auto out = device.commands().execute<Out>(in);
  return out ? out->get(Out::dump_fill_mkey) : 0;
}

}  // namespace

mlx5_ib_alloc_ucontext_resp Context::describe_context() {
  const auto caps = device_.capabilities();
  mlx5_ib_alloc_ucontext_resp out{};
  out.qp_tab_size = 1u << caps.get(hca_cap::log_max_qp);
  // No BlueFlame: its WQE copies would need write combining, and doorbells are read from their
  // records. No static doorbell pages either: programs allocate their own.
  out.bf_reg_size = 0;
  out.tot_bfregs = 0;
  out.cache_line_size = 64;
  out.max_sq_desc_sz = 1024;
  out.max_rq_desc_sz = 512;
  out.max_send_wqebb = 1u << caps.get(hca_cap::log_max_qp_sz);
  out.max_recv_wr = 1u << caps.get(hca_cap::log_max_qp_sz);
  out.max_srq_recv_wr = (1u << caps.get(hca_cap::log_max_srq_sz)) - 1;
  out.num_ports = 1;
  out.response_length = sizeof out;
  out.cqe_version = 1;
  // QUERY_DEVICE has a driver part, and CREATE_AH returns the MAC.
  out.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
  out.eth_min_inline = MLX5_USER_INLINE_MODE_L2;
  out.log_uar_size = 12;
  out.num_uars_per_page = 1;
  out.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG;
  if (const auto key = dump_fill_key(device_); key != 0) {
    out.dump_fill_mkey = key;
    out.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY;
  }
  if (store_clock(device_, options_.wall_clock, options_.store)) {
    out.clock_info_versions = 1u << MLX5_IB_CLOCK_INFO_V1;
  }
  return out;
}

Errno Context::get_context(Request& request) {
  if (user_.exists()) return EINVAL;
  const auto in = request.get<mlx5_ib_alloc_ucontext_req_v2>(UVERBS_ATTR_UHW_IN);
  if (in.max_cqe_version < 1 || (in.lib_caps & MLX5_LIB_CAP_DYN_UAR) == 0) return EOPNOTSUPP;
  if (const auto wrong = request.put(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, kCompletionVectors);
      wrong != 0) {
    return wrong;
  }
  if (const auto wrong = request.put(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, kOptionalAccessFlags);
      wrong != 0) {
    return wrong;
  }
  if ((in.flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0 && !user_.make_uid()) return EINVAL;
  const auto wrong = request.put(UVERBS_ATTR_UHW_OUT, describe_context());
  user_.set_exists(wrong == 0);
  if (!user_.exists()) user_.end_uid();
  return wrong;
}

Errno Context::query_context(Request& request) {
  if (const auto wrong =
          request.put(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, kCompletionVectors);
      wrong != 0) {
    return wrong;
  }
  if (const auto wrong = request.put(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, kOptionalAccessFlags);
      wrong != 0) {
    return wrong;
  }
  return request.put(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, describe_context());
}

namespace {

/// The kind of an object of uverbs. Nothing if programs have no handles of that object.
std::optional<Kind> kind_of(std::uint64_t object) {
  switch (object) {
    case UVERBS_OBJECT_PD:
      return Kind::kPd;
    case UVERBS_OBJECT_CQ:
      return Kind::kCq;
    case UVERBS_OBJECT_QP:
      return Kind::kQp;
    case UVERBS_OBJECT_SRQ:
      return Kind::kSrq;
    case UVERBS_OBJECT_AH:
      return Kind::kAh;
    case UVERBS_OBJECT_MR:
      return Kind::kMr;
    case UVERBS_OBJECT_MW:
      return Kind::kMw;
    case UVERBS_OBJECT_FLOW:
      return Kind::kFlow;
    case UVERBS_OBJECT_XRCD:
      return Kind::kXrcd;
    case UVERBS_OBJECT_RWQ_IND_TBL:
      return Kind::kReceiveTable;
    case UVERBS_OBJECT_WQ:
      return Kind::kReceiveQueue;
    case UVERBS_OBJECT_COUNTERS:
      return Kind::kCounters;
    default:
      return std::nullopt;
  }
}

}  // namespace

/// Returns the handles of one kind, as many as the buffer holds.
Errno Context::info_handles(Request& request) {
  const auto kind = kind_of(request.get<std::uint64_t>(UVERBS_ATTR_INFO_OBJECT_ID));
  if (!kind) return EINVAL;
  const auto room = request.size(UVERBS_ATTR_INFO_HANDLES_LIST) / sizeof(std::uint32_t);
  auto handles = objects_.handles(*kind);
  handles.resize(std::min(handles.size(), room));
  const auto count = static_cast<std::uint32_t>(handles.size());
  const auto wrong =
      request.put_bytes(UVERBS_ATTR_INFO_HANDLES_LIST, std::as_bytes(std::span(handles)));
  return wrong != 0 ? wrong : request.put(UVERBS_ATTR_INFO_TOTAL_HANDLES, count);
}

Errno Context::query_port(Request& request) {
  if (request.get<std::uint8_t>(UVERBS_ATTR_QUERY_PORT_PORT_NUM) != kPort) return EINVAL;
  const auto up = device_.hca().link_is_up();
  ib_uverbs_query_port_resp_ex out{};
  auto& port = out.legacy_resp;
  port.flags = IB_UVERBS_QPF_GRH_REQUIRED;
  port.port_cap_flags = 0x04010000;  // CM_SUP, IP_BASED_GIDS
  port.max_msg_sz = 1u << device_.capabilities().get(hca_cap::log_max_msg);
  port.gid_tbl_len = kGids;
  port.qkey_viol_cntr = device_.hca().qkey_violations().value_or(0);
  port.pkey_tbl_len = 1;
  const bool active = up.value_or(false);
  port.state = active ? 4 : 1;
  port.max_mtu = kMtu4096;
  port.active_mtu = device_.active_mtu();
  port.active_width = 2;   // 4X
  port.active_speed = 32;  // EDR
  port.phys_state = active ? 5 : 3;
  port.link_layer = 2;  // Ethernet
  return request.put(UVERBS_ATTR_QUERY_PORT_RESP, out);
}

/// The driver's part of a port of an e-switch. This port belongs to none, so the answer is empty.
Errno Context::query_device_port(Request& request) {
  if (request.get<std::uint32_t>(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM) != kPort) return EINVAL;
  return request.put(MLX5_IB_ATTR_QUERY_PORT, mlx5_ib_uapi_query_port{});
}

namespace {

ib_uverbs_gid_entry describe(const GidEntry& entry, std::uint32_t index, unsigned interface) {
  ib_uverbs_gid_entry out{};
  std::memcpy(out.gid, entry.gid.bytes.data(), sizeof out.gid);
  out.gid_index = index;
  out.port_num = kPort;
  out.gid_type = entry.roce_v2 ? IB_UVERBS_GID_TYPE_ROCE_V2 : IB_UVERBS_GID_TYPE_ROCE_V1;
  out.netdev_ifindex = interface;
  return out;
}

}  // namespace

Errno Context::query_gid_table(Request& request) {
  const auto size = request.get<std::uint64_t>(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
  if (request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS) != 0) return EINVAL;
  if (size == 0 || size > kEntryMax) return EINVAL;
  const auto room = request.size(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES) / size;
  std::vector<std::byte> all;
  std::uint64_t count = 0;
  for (std::uint32_t i = 0; i != device_.gids_end(); ++i) {
    if (device_.gid(i) == nullptr) continue;
    if (count++ == room) return EINVAL;
    const auto entry = describe(*device_.gid(i), i, device_.options().interface_index);
    all.resize(all.size() + size);
    std::memcpy(all.data() + all.size() - size, &entry, std::min<std::size_t>(size, sizeof entry));
  }
  if (const auto wrong = request.put_bytes(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, all);
      wrong != 0) {
    return wrong;
  }
  return request.put(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
}

Errno Context::query_gid_entry(Request& request) {
  const auto index = request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
  if (request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS) != 0) return EINVAL;
  if (request.get<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_PORT) != kPort || index >= kGids) {
    return EINVAL;
  }
  const auto* entry = device_.gid(index);
  if (entry == nullptr) return ENODATA;
  return request.put(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                     describe(*entry, index, device_.options().interface_index));
}

}  // namespace softhca::uverbs
