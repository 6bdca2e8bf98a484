#include "uverbs/queue_pairs.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include "uverbs/dynamic_targets.h"
#include "uverbs/raw_packet_qps.h"
#include "uverbs/reply.h"
#include "uverbs/rss_qps.h"
#include "uverbs/transport_qps.h"

namespace softhca::uverbs {

namespace {

using namespace rules;

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
                                       kDriverIn,
                                       kDriverOut};
constexpr AttributeRule kDestroyQp[] = {object(UVERBS_ATTR_DESTROY_QP_HANDLE),
                                        value_out(UVERBS_ATTR_DESTROY_QP_RESP, 4)};

/// Rejects objects that a QP of its type cannot have (ib_uverbs' UVERBS_METHOD_QP_CREATE).
Errno check_objects(const Request& request, std::uint32_t type) {
  const auto has = [&](std::uint16_t id) { return request.has(id); };
  if (type == IB_UVERBS_QPT_XRC_TGT) {
    const bool has_others =
        has(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE) || has(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE) ||
        has(UVERBS_ATTR_CREATE_QP_PD_HANDLE) || has(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE);
    return has_others ? EINVAL : 0;
  }
  if (has(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE)) return EINVAL;
  const bool is_initiator = type == IB_UVERBS_QPT_XRC_INI;
  return is_initiator && has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) ? EINVAL : 0;
}

template <class Kind>
std::unique_ptr<QueuePair> make(Device& device) {
  return std::make_unique<Kind>(device);
}

/// Kinds of QPs, by ib_uverbs_qp_type and a flag that the driver must have set.
constexpr struct {
  std::uint32_t type, driver_flag;
  std::unique_ptr<QueuePair> (*make)(Device&);
} kKinds[] = {
    {IB_UVERBS_QPT_RC, 0, make<ReliableQp>},
    {IB_UVERBS_QPT_UC, 0, make<UnreliableQp>},
    {IB_UVERBS_QPT_UD, 0, make<DatagramQp>},
    {IB_UVERBS_QPT_XRC_INI, 0, make<XrcInitiator>},
    {IB_UVERBS_QPT_XRC_TGT, 0, make<XrcTargetQp>},
    {IB_UVERBS_QPT_RAW_PACKET, 0, make<RawPacketQp>},
    {IB_UVERBS_QPT_DRIVER, MLX5_QP_FLAG_TYPE_DCI, make<DynamicInitiator>},
    {IB_UVERBS_QPT_DRIVER, MLX5_QP_FLAG_TYPE_DCT, make<DynamicTarget>},
};

/// A new QP of the kind that the program asks for. Null: the device has no such kind here.
std::unique_ptr<QueuePair> new_qp(const QpCreation& creation, std::uint32_t type) {
  auto& device = creation.file.device;
  if (creation.request.has(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE)) return make<ScalingQp>(device);
  for (const auto& kind : kKinds) {
    const bool is_asked = kind.driver_flag == 0 || creation.has_driver_flag(kind.driver_flag);
    if (kind.type == type && is_asked) return kind.make(device);
  }
  return nullptr;
}

}  // namespace

std::span<const Method<QueuePairCommands>> QueuePairCommands::methods() {
  static constexpr Method<QueuePairCommands> kMethods[] = {
      {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, kCreateQp, &QueuePairCommands::create_qp},
      {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, kDestroyQp, &QueuePairCommands::destroy_qp},
  };
  return kMethods;
}

std::span<const WriteCommand<QueuePairCommands>> QueuePairCommands::write_commands() {
  static constexpr WriteCommand<QueuePairCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_MODIFY_QP, 112, 0}, &QueuePairCommands::modify_qp},
      {{extended(IB_USER_VERBS_EX_CMD_MODIFY_QP), 112, 0, sizeof(ib_uverbs_ex_modify_qp)},
       &QueuePairCommands::modify_qp_extended},
      {{IB_USER_VERBS_CMD_QUERY_QP, 16, 128}, &QueuePairCommands::query_qp},
  };
  return kCommands;
}

Errno QueuePairCommands::create_qp(Request& request) {
  const auto type = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_TYPE);
  if (const auto wrong = check_objects(request, type); wrong != 0) return wrong;
  const QpCreation creation{
      .file = file_,
      .request = request,
      .in = request.get<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN),
      .flags = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS),
  };
  auto qp = new_qp(creation, type);
  if (qp == nullptr) return EINVAL;
  if (const auto wrong = qp->create(creation); wrong != 0) return wrong;
  const auto& made = *qp;
  mlx5_ib_create_qp_resp own{};
  own.bfreg_index = UINT32_MAX;  // a page was named
  if (file_.user.uid() != 0) qp->put_numbers(own);
  return Reply(request, file_.objects, std::move(qp))
      .put_handle(UVERBS_ATTR_CREATE_QP_HANDLE)
      .put(UVERBS_ATTR_CREATE_QP_RESP_CAP, made.caps)
      .put(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, made.qpn)
      .put(UVERBS_ATTR_UHW_OUT, own)
      .end();
}

Errno QueuePairCommands::destroy_qp(Request& request) {
  ib_uverbs_destroy_qp_resp out{};
  const auto wrong =
      destroy_object<QueuePair>(file_.objects, request.number(UVERBS_ATTR_DESTROY_QP_HANDLE),
                                [&](QueuePair& qp) { out.events_reported = qp.async.take_back(); });
  return wrong != 0 ? wrong : request.put(UVERBS_ATTR_DESTROY_QP_RESP, out);
}

Errno QueuePairCommands::modify_qp(Request& request) {
  const auto in = request.get<QpAttributes>(UVERBS_ATTR_CORE_IN);
  if ((in.attr_mask & ~std::uint32_t{kQpStandard}) != 0) return EOPNOTSUPP;
  QueuePair* qp = nullptr;
  const auto missing = file_.objects.find(in.qp_handle, qp);
  return missing != 0 ? missing : qp->modify(in);
}

Errno QueuePairCommands::modify_qp_extended(Request& request) {
  const auto in = request.get<ib_uverbs_ex_modify_qp>(UVERBS_ATTR_CORE_IN);
  if ((in.base.attr_mask & ~std::uint32_t{kQpStandard | kQpRateLimit}) != 0) return EOPNOTSUPP;
  QueuePair* qp = nullptr;
  if (const auto missing = file_.objects.find(in.base.qp_handle, qp); missing != 0) return missing;
  if (const auto wrong = qp->modify(in.base, in.rate_limit); wrong != 0) return wrong;
  ib_uverbs_ex_modify_qp_resp out{};
  out.response_length = sizeof out;
  if (const auto wrong = request.put(UVERBS_ATTR_CORE_OUT, out); wrong != 0) return wrong;
  mlx5_ib_modify_qp_resp own{};
  own.response_length = offsetof(mlx5_ib_modify_qp_resp, dctn);
  qp->put_dctn(own);
  return request.put(UVERBS_ATTR_UHW_OUT, own);
}

Errno QueuePairCommands::query_qp(Request& request) {
  const auto in = request.get<ib_uverbs_query_qp>(UVERBS_ATTR_CORE_IN);
  QueuePair* qp = nullptr;
  if (const auto missing = file_.objects.find(in.qp_handle, qp); missing != 0) return missing;
  ib_uverbs_query_qp_resp out{};
  if (const auto wrong = qp->query(in.attr_mask, out); wrong != 0) return wrong;
  return request.put(UVERBS_ATTR_CORE_OUT, out);
}

}  // namespace softhca::uverbs
