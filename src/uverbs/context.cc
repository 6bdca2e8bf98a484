#include "uverbs/context.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "util/log.h"
#include "uverbs/method.h"

namespace softhca::uverbs {

namespace {

using namespace rules;
constexpr std::uint16_t kUhwIn = UVERBS_ATTR_UHW_IN;
constexpr std::uint16_t kUhwOut = UVERBS_ATTR_UHW_OUT;

constexpr AttributeRule kUhw[] = {in(kUhwIn, 0, false), out(kUhwOut, 0, false)};

// Attributes of the methods (kernel interface 3.4). Each may carry the driver's own (UHW).
constexpr AttributeRule kInvokeWrite[] = {in(UVERBS_ATTR_CORE_IN, 0, false),
                                          out(UVERBS_ATTR_CORE_OUT, 0, false),
                                          const_in(UVERBS_ATTR_WRITE_CMD, 4), kUhw[0], kUhw[1]};
constexpr AttributeRule kInfoHandles[] = {const_in(UVERBS_ATTR_INFO_OBJECT_ID, 8),
                                          value_out(UVERBS_ATTR_INFO_TOTAL_HANDLES, 4, false),
                                          out(UVERBS_ATTR_INFO_HANDLES_LIST, 4, false)};
constexpr AttributeRule kGetContext[] = {
    value_out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, false),
    value_out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, false), kUhw[0], kUhw[1]};
constexpr AttributeRule kQueryContext[] = {
    value_out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, 4, false),
    value_out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, 8, false),
    out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, 0, false)};
constexpr AttributeRule kQueryDevicePort[] = {value_in(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, 4),
                                              out(MLX5_IB_ATTR_QUERY_PORT, 8)};
constexpr AttributeRule kQueryPort[] = {const_in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1),
                                        out(UVERBS_ATTR_QUERY_PORT_RESP, 40)};
constexpr AttributeRule kQueryGidTable[] = {
    const_in(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 8),
    flags_in(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS), out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, 0),
    value_out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8)};
constexpr AttributeRule kQueryGidEntry[] = {const_in(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 4),
                                            const_in(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 4),
                                            flags_in(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS),
                                            out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, 0)};
constexpr AttributeRule kDestroyXrcd[] = {object(UVERBS_ATTR_DESTROY_XRCD_HANDLE)};
constexpr AttributeRule kCreateQp[] = {made(UVERBS_ATTR_CREATE_QP_HANDLE),
                                       object(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, false),
                                       object(UVERBS_ATTR_CREATE_QP_PD_HANDLE, false),
                                       object(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, false),
                                       object(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, false),
                                       object(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, false),
                                       object(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, false),
                                       value_in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8),
                                       struct_in(UVERBS_ATTR_CREATE_QP_CAP, 20),
                                       const_in(UVERBS_ATTR_CREATE_QP_TYPE, 4),
                                       flags_in(UVERBS_ATTR_CREATE_QP_FLAGS),
                                       value_in(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, 4, false),
                                       descriptor(UVERBS_ATTR_CREATE_QP_EVENT_FD),
                                       out(UVERBS_ATTR_CREATE_QP_RESP_CAP, 20),
                                       value_out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4),
                                       kUhw[0],
                                       kUhw[1]};
constexpr AttributeRule kDestroyQp[] = {object(UVERBS_ATTR_DESTROY_QP_HANDLE),
                                        value_out(UVERBS_ATTR_DESTROY_QP_RESP, 4)};

}  // namespace

std::span<const Context::Method> Context::methods() {
  static constexpr Method kMethods[] = {
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, kInvokeWrite, &Context::invoke_write},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, kInfoHandles, &Context::info_handles},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, kGetContext, &Context::get_context},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, kQueryContext, &Context::query_context},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, kQueryPort, &Context::query_port},
      {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, kQueryDevicePort,
       &Context::query_device_port},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, kQueryGidTable,
       &Context::query_gid_table},
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, kQueryGidEntry,
       &Context::query_gid_entry},
      {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, kDestroyXrcd,
       &Context::destroy<XrcDomain, UVERBS_ATTR_DESTROY_XRCD_HANDLE>},
      {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, kCreateQp, &Context::create_qp},
      {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, kDestroyQp, &Context::destroy_qp},
  };
  return kMethods;
}

namespace {

void note_refusal(const Request& request, Errno wrong) {
  const bool write_form =
      request.object() == UVERBS_OBJECT_DEVICE && request.method() == UVERBS_METHOD_INVOKE_WRITE;
  util::log(util::LogLevel::kDebug, "uverbs: object {:#x} method {:#x} (command {:#x}): {}",
            request.object(), request.method(),
            write_form ? request.get<std::uint32_t>(UVERBS_ATTR_WRITE_CMD) : 0,
            std::generic_category().message(wrong));
}

}  // namespace

Context::Context(Device& device, const UserMemory& memory, Options options)
    : device_(device), memory_(memory), options_(std::move(options)), user_(device) {}

Context::~Context() {
  objects_.clear();
  device_.subscriptions().remove(this);
}

Errno Context::serve(std::uint64_t argument) {
  Request request;
  if (const auto wrong = request.parse(memory_, argument); wrong != 0) return wrong;
  std::optional<Errno> wrong;
  for (const auto table :
       {methods(), devx_methods(), flow_methods(), counter_methods(), scaling_methods()}) {
    if (!wrong) wrong = serve_method(table, *this, user_, request);
  }
  if (!wrong) wrong = commands_.serve(request);
  if (!wrong) wrong = EPROTONOSUPPORT;
  if (*wrong != 0) note_refusal(request, *wrong);
  return *wrong;
}

void Context::flush_events() {
  events_.flush();
  for (auto& [identity, answers] : answers_) answers->flush();
  // A program may have thousands of channels, and their pipes are rarely full.
  if (!std::exchange(*events_wait_, false)) return;
  for (auto& [identity, channel] : event_channels_) channel->pipe.flush();
}

}  // namespace softhca::uverbs
