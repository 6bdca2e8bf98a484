#include "uverbs/device_commands.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "spec/connectx/caps.h"
#include "spec/connectx/hca.h"
#include "uverbs/abi.h"
#include "uverbs/clock_page.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using spec::hca_cap;

namespace {

using namespace rules;

constexpr AttributeRule kGetContext[] = {
    value_out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, false),
    value_out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, false), kDriverIn, kDriverOut};
constexpr AttributeRule kQueryContext[] = {
    value_out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, 4, false),
    value_out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, 8, false),
    out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, 0, false)};
constexpr AttributeRule kInfoHandles[] = {const_in(UVERBS_ATTR_INFO_OBJECT_ID, 8),
                                          value_out(UVERBS_ATTR_INFO_TOTAL_HANDLES, 4, false),
                                          out(UVERBS_ATTR_INFO_HANDLES_LIST, 4, false)};

constexpr std::uint64_t kOptionalAccessFlags = 1;

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

std::span<const Method<DeviceCommands>> DeviceCommands::methods() {
  static constexpr Method<DeviceCommands> kMethods[] = {
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, kGetContext, &DeviceCommands::get_context},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, kQueryContext,
       &DeviceCommands::query_context},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, kInfoHandles,
       &DeviceCommands::info_handles},
  };
  return kMethods;
}

std::span<const WriteCommand<DeviceCommands>> DeviceCommands::write_commands() {
  static constexpr WriteCommand<DeviceCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_QUERY_DEVICE, 8, 176}, &DeviceCommands::query_device},
      {{extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), 8, 184},
       &DeviceCommands::query_device_extended},
  };
  return kCommands;
}

mlx5_ib_alloc_ucontext_resp DeviceCommands::describe_context() {
  const auto caps = file_.device.capabilities();
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
  if (const auto key = dump_fill_key(file_.device); key != 0) {
    out.dump_fill_mkey = key;
    out.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY;
  }
  if (store_clock(file_.device, options_.wall_clock, options_.store)) {
    out.clock_info_versions = 1u << MLX5_IB_CLOCK_INFO_V1;
  }
  return out;
}

Errno DeviceCommands::get_context(Request& request) {
  if (file_.user.exists()) return EINVAL;
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
  if ((in.flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0 && !file_.user.make_uid()) return EINVAL;
  const auto wrong = request.put(UVERBS_ATTR_UHW_OUT, describe_context());
  file_.user.set_exists(wrong == 0);
  if (!file_.user.exists()) file_.user.end_uid();
  return wrong;
}

Errno DeviceCommands::query_context(Request& request) {
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
Errno DeviceCommands::info_handles(Request& request) {
  const auto kind = kind_of(request.get<std::uint64_t>(UVERBS_ATTR_INFO_OBJECT_ID));
  if (!kind) return EINVAL;
  const auto room = request.size(UVERBS_ATTR_INFO_HANDLES_LIST) / sizeof(std::uint32_t);
  auto handles = file_.objects.handles(*kind);
  handles.resize(std::min(handles.size(), room));
  const auto count = static_cast<std::uint32_t>(handles.size());
  const auto wrong =
      request.put_bytes(UVERBS_ATTR_INFO_HANDLES_LIST, std::as_bytes(std::span(handles)));
  return wrong != 0 ? wrong : request.put(UVERBS_ATTR_INFO_TOTAL_HANDLES, count);
}

}  // namespace softhca::uverbs
