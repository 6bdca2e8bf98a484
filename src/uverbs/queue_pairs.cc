#include "uverbs/queue_pairs.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include "spec/connectx/qp.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/doorbell_pages.h"
#include "uverbs/dynamic_targets.h"
#include "uverbs/program_pages.h"
#include "uverbs/qp_query.h"
#include "uverbs/qp_states.h"
#include "uverbs/raw_packet_qps.h"
#include "uverbs/reply.h"
#include "uverbs/rss_qps.h"
#include "uverbs/xrc_targets.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::hca_cap;

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

constexpr std::uint32_t kNoUserIndex = 0xffffff;
constexpr unsigned kLogReceiveUnit = 4;
constexpr unsigned kLogReceiveMax = 9;

/// ib_uverbs_qp_create_flags: all that exist, and those allowed for QPs of RDMA transports.
constexpr std::uint32_t kQpFlags =
    IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SCATTER_FCS |
    IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
    IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
constexpr std::uint32_t kRdmaQpFlags =
    IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
constexpr std::uint32_t kRawQpFlags =
    IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;

/// The checks of ib_uverbs' check_creation_flags and mlx5_ib's process_create_flags.
Errno check_flags(std::uint32_t type, std::uint32_t flags) {
  if ((flags & ~kQpFlags) != 0) return EINVAL;
  if (type == IB_UVERBS_QPT_RAW_PACKET) return 0;
  const auto others = flags & ~std::uint32_t{IB_UVERBS_QP_CREATE_SQ_SIG_ALL};
  if (type == IB_UVERBS_QPT_UD) {
    if ((others & kRawQpFlags) != 0) return EINVAL;
  } else if (type != IB_UVERBS_QPT_DRIVER && others != 0) {
    return EINVAL;
  }
  return (flags & ~kRdmaQpFlags) != 0 ? EOPNOTSUPP : 0;
}

std::uint64_t receive_size(const mlx5_ib_create_qp& in) {
  return std::uint64_t{in.rq_wqe_count} << in.rq_wqe_shift;
}
/// Bytes of the receive queue plus the send queue behind it.
std::uint64_t queues_size(const mlx5_ib_create_qp& in) {
  return receive_size(in) + in.sq_wqe_count * kSendBlock;
}

Errno check_queues(const Device& device, const mlx5_ib_create_qp& in) {
  constexpr std::uint32_t kFlags = MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SCATTER_CQE |
                                   MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_TYPE_DCI |
                                   MLX5_QP_FLAG_SIGNATURE;
  if ((in.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) == 0 || (in.flags & ~kFlags) != 0) return EINVAL;
  const auto most = 1u << device.capabilities().get(hca_cap::log_max_qp_sz);
  const auto is_size = [&](std::uint32_t count) {
    return count == 0 || (std::has_single_bit(count) && count <= most);
  };
  const bool good_stride = in.rq_wqe_count == 0 || (in.rq_wqe_shift >= kLogReceiveUnit &&
                                                    in.rq_wqe_shift <= kLogReceiveMax);
  if (!is_size(in.sq_wqe_count) || !is_size(in.rq_wqe_count) || !good_stride) return EINVAL;
  return are_aligned(in.buf_addr, in.db_addr, kWorkRecordAlignment) ? 0 : EINVAL;
}

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

/// mlx5_ib's check_qp_attr: a DC initiator asks for no receives. And its set_rq_size: without
/// receive requests there is no receive queue, whatever space the program has reserved.
Errno check_receive_queue(QueuePair& qp, const mlx5_ib_create_qp& in) {
  auto& caps = qp.caps;
  const bool receives = caps.max_recv_wr != 0 || caps.max_recv_sge != 0;
  if (qp.service == spec::service_type::DCI && receives) return EINVAL;
  if (caps.max_recv_wr > 1u << qp.device.capabilities().get(hca_cap::log_max_qp_sz)) return EINVAL;
  if (qp.type != IB_UVERBS_QPT_XRC_INI && qp.srq.get() == nullptr && caps.max_recv_wr != 0) {
    return 0;
  }
  caps.max_recv_wr = caps.max_recv_sge = 0;
  return in.rq_wqe_count != 0 || in.rq_wqe_shift != 0 ? EINVAL : 0;
}

/// Asks for short data in CQEs, as create_user_qp and configure_requester_scat_cqe of mlx5_ib do:
/// of SENDs to RC and UC QPs, and of READs if each of them has a CQE. The buffer gets these bytes
/// when libmlx5 polls the CQE, and not before.
void describe_data_in_cqes(const QueuePair& qp, std::uint32_t driver_flags, std::uint32_t flags,
                           util::MutableView<spec::qpc> context) {
  using Requester = spec::qp_cs_req;
  using Responder = spec::qp_cs_res;
  constexpr std::uint32_t kWide = 128;
  if ((driver_flags & MLX5_QP_FLAG_SCATTER_CQE) == 0) return;
  const auto is_wide = [](const Use& cq) {
    return static_cast<const CompletionQueue*>(cq.get())->entry_size == kWide;
  };
  if (qp.type == IB_UVERBS_QPT_RC || qp.type == IB_UVERBS_QPT_UC) {
    const auto room = is_wide(qp.receive_cq) ? Responder::UP_TO_64B : Responder::UP_TO_32B;
    context.set(spec::qpc::cs_res, static_cast<std::uint32_t>(room));
  }
  const bool reads = qp.type == IB_UVERBS_QPT_RC || qp.service == spec::service_type::DCI;
  const bool completes_all = (driver_flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE) != 0 ||
                             (flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0;
  if (!reads || !completes_all) return;
  const auto room = is_wide(qp.send_cq) ? Requester::UP_TO_64B : Requester::UP_TO_32B;
  context.set(spec::qpc::cs_req, static_cast<std::uint32_t>(room));
}

/// Runs CREATE_QP. False if the device refuses it.
bool make_qp(QueuePair& qp, const mlx5_ib_create_qp& in, std::uint32_t flags) {
  auto& device = qp.device;
  const auto size = queues_size(in);
  Command<spec::create_qp_in> create(command_opcode::CREATE_QP,
                                     pages_of(in.buf_addr, size) * sizeof(std::uint64_t));
  create.set(spec::create_qp_in::uid, qp.uid);
  using Qpc = spec::qpc;
  const auto context = create.sub(spec::create_qp_in::qpc);
  context.set(Qpc::st, static_cast<std::uint32_t>(qp.service));
  context.set(Qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
  context.set(Qpc::pd, qp.pdn);
  context.set(Qpc::uar_page, in.bfreg_index);
  context.set(Qpc::page_offset, page_offset_of(in.buf_addr));
  context.set(Qpc::user_index, in.uidx);
  context.set(Qpc::wq_signature, (in.flags & MLX5_QP_FLAG_SIGNATURE) != 0);
  context.set(Qpc::log_msg_max, device.capabilities().get(hca_cap::log_max_msg));
  if (in.sq_wqe_count == 0) {
    context.set(Qpc::no_sq, 1);
  } else {
    context.set(Qpc::log_sq_size, log2_of(in.sq_wqe_count));
  }
  auto rq_type = spec::qp_rq_type::ZERO_LENGTH_RQ;
  if (const auto* srq = static_cast<SharedQueue*>(qp.srq.get()); srq != nullptr) {
    rq_type = spec::qp_rq_type::SRQ;
    context.set(Qpc::srqn_rmpn_xrqn, srq->number);
  } else if (in.rq_wqe_count != 0) {
    rq_type = spec::qp_rq_type::NON_ZERO_RQ;
    context.set(Qpc::log_rq_size, log2_of(in.rq_wqe_count));
    context.set(Qpc::log_rq_stride, in.rq_wqe_shift - kLogReceiveUnit);
  }
  context.set(Qpc::rq_type, static_cast<std::uint32_t>(rq_type));
  if (const auto* xrcd = static_cast<XrcDomain*>(qp.xrcd.get()); xrcd != nullptr) {
    context.set(Qpc::xrcd, xrcd->shared->number());
    context.set(Qpc::rq_type, static_cast<std::uint32_t>(spec::qp_rq_type::SRQ));
  }
  if (qp.type == IB_UVERBS_QPT_XRC_INI) context.set(Qpc::xrcd, device.own_xrc_domain());
  context.set(Qpc::cqn_snd, qp.send_cqn);
  context.set(Qpc::cqn_rcv, qp.receive_cqn);
  describe_data_in_cqes(qp, in.flags, flags, context);
  context.set(Qpc::block_lb_mc, (flags & IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK) != 0);
  context.set(Qpc::dbr_addr, Device::bus_address(in.db_addr));
  store_pages(create.all().subspan(spec::create_qp_in::pas_offset), in.buf_addr);
  const auto out = device.commands().execute<spec::create_qp_out>(create);
  if (!out) return false;
  qp.qpn = out->get(spec::create_qp_out::qpn);
  qp.exists = true;
  device.add_queue_target(qp.qpn, qp);
  return true;
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

Errno QueuePairCommands::find_objects(const Request& request, QueuePair& qp) {
  const auto number = [&](std::uint16_t id) { return request.number(id); };
  if (qp.type == IB_UVERBS_QPT_XRC_TGT) {
    XrcDomain* xrcd = nullptr;
    if (const auto missing = objects_.find(number(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE), xrcd);
        missing != 0) {
      return missing;
    }
    qp.xrcd = Use(xrcd);
    qp.pdn = device_.own_pd();
    return 0;
  }
  ProtectionDomain* pd = nullptr;
  CompletionQueue* send_cq = nullptr;
  auto missing = objects_.find(number(UVERBS_ATTR_CREATE_QP_PD_HANDLE), pd);
  if (missing == 0) missing = objects_.find(number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE), send_cq);
  if (missing != 0) return missing;
  // Linux creates XRC initiators as its own: their domain is the kernel's.
  qp.uid = qp.type == IB_UVERBS_QPT_XRC_INI ? 0 : user_.uid();
  qp.pd = Use(pd);
  qp.pdn = pd->pdn;
  qp.send_cq = Use(send_cq);
  qp.send_cqn = send_cq->cqn;
  if (qp.type == IB_UVERBS_QPT_XRC_INI) return 0;
  // A DC initiator receives nothing, so its receive CQ is optional.
  if (qp.service == spec::service_type::DCI && !request.has(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)) {
    qp.receive_cqn = qp.send_cqn;
    return 0;
  }
  CompletionQueue* receive_cq = nullptr;
  missing = objects_.find(number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE), receive_cq);
  if (missing != 0) return missing;
  qp.receive_cq = Use(receive_cq);
  qp.receive_cqn = receive_cq->cqn;
  if (!request.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)) return 0;
  SharedQueue* srq = nullptr;
  missing = objects_.find(number(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE), srq);
  if (missing != 0) return missing;
  if (srq->is_xrc) return EINVAL;
  qp.srq = Use(srq);
  return 0;
}

/// Finds the queues in the program's memory. An XRC target has none.
Errno QueuePairCommands::find_memory(QueuePair& qp, const mlx5_ib_create_qp& in) {
  if (const auto wrong = check_queues(device_, in); wrong != 0) return wrong;
  const auto size = queues_size(in);
  if (!is_there(memory_, in.buf_addr, size) || !is_there(memory_, in.db_addr, kRecordSize)) {
    return EFAULT;
  }
  auto* const page = find_page(objects_, in.bfreg_index);
  if (page == nullptr) return EINVAL;
  if (const auto wrong = qp.queues.locked.take(memory_.locked(), in.buf_addr, size); wrong != 0) {
    return wrong;
  }
  qp.queues.page = Use(page);
  qp.queues.uar = in.bfreg_index;
  qp.queues.record = in.db_addr;
  qp.queues.range = {.begin = in.buf_addr, .size = size};
  qp.queues.has_sender = in.sq_wqe_count != 0;
  qp.queues.receive_entries = in.rq_wqe_count;
  qp.queues.receive_sges = receive_sges(in);
  return 0;
}

Errno QueuePairCommands::create_qp(Request& request) {
  const auto type = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_TYPE);
  if (const auto wrong = check_objects(request, type); wrong != 0) return wrong;
  if (request.has(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE)) return create_scaling_qp(file_, request);
  mlx5_ib_create_qp in{};
  if (type != IB_UVERBS_QPT_XRC_TGT) in = request.get<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN);
  const bool is_raw = type == IB_UVERBS_QPT_RAW_PACKET;
  const auto service = is_raw ? spec::service_type::RAW_ETHERTYPE : service_of(type, in.flags);
  if (!service) return EINVAL;
  auto qp = std::make_unique<QueuePair>(device_);
  qp->type = static_cast<std::uint8_t>(type);
  qp->service = *service;
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
  if (const auto wrong = check_flags(type, flags); wrong != 0) return wrong;
  // Only IPoIB uses underlay QPs.
  if (request.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN)) return EOPNOTSUPP;
  if (const auto wrong = find_objects(request, *qp); wrong != 0) return wrong;
  if (const auto wrong =
          events_.find_async(request, UVERBS_ATTR_CREATE_QP_EVENT_FD, qp->async.file);
      wrong != 0) {
    return wrong;
  }
  qp->caps = request.get<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
  if (type != IB_UVERBS_QPT_XRC_TGT && !qp->is_target()) {
    if (const auto wrong = check_receive_queue(*qp, in); wrong != 0) return wrong;
  }
  if (is_raw) {
    if (const auto wrong = make_raw_packet_qp(file_, *qp, in, flags); wrong != 0) return wrong;
  } else if (type == IB_UVERBS_QPT_XRC_TGT) {
    in.uidx = kNoUserIndex;
  } else if (qp->is_target()) {
    if (const auto wrong = describe_target(*qp, in); wrong != 0) return wrong;
  } else if (const auto wrong = find_memory(*qp, in); wrong != 0) {
    return wrong;
  }
  qp->async.user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
  qp->signals_all = (flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0;
  if (!is_raw && !qp->is_target() && !make_qp(*qp, in, flags)) return ENOMEM;
  if (type == IB_UVERBS_QPT_XRC_TGT) share_xrc_target(*qp);
  const auto qpn = qp->qpn;
  const auto caps = qp->caps;
  mlx5_ib_create_qp_resp own{};
  own.bfreg_index = UINT32_MAX;  // a page was named
  if (is_raw && user_.uid() != 0) tell_of_raw_packet_qp(*qp, own);
  return Reply(request, objects_, std::move(qp))
      .put_handle(UVERBS_ATTR_CREATE_QP_HANDLE)
      .put(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps)
      .put(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn)
      .put(UVERBS_ATTR_UHW_OUT, own)
      .end();
}

Errno QueuePairCommands::destroy_qp(Request& request) {
  const auto handle = request.number(UVERBS_ATTR_DESTROY_QP_HANDLE);
  QueuePair* qp = nullptr;
  if (const auto missing = objects_.find(handle, qp); missing != 0) return missing;
  if (qp->users != 0 || !qp->groups.empty()) return EBUSY;
  const ib_uverbs_destroy_qp_resp out{.events_reported = qp->async.take_back()};
  objects_.remove(handle);
  return request.put(UVERBS_ATTR_DESTROY_QP_RESP, out);
}

Errno QueuePairCommands::modify_qp(Request& request) {
  const auto in = request.get<QpAttributes>(UVERBS_ATTR_CORE_IN);
  if ((in.attr_mask & ~std::uint32_t{kQpStandard}) != 0) return EOPNOTSUPP;
  QueuePair* qp = nullptr;
  if (const auto missing = objects_.find(in.qp_handle, qp); missing != 0) return missing;
  return change_qp(*qp, in);
}

Errno QueuePairCommands::modify_qp_extended(Request& request) {
  const auto in = request.get<ib_uverbs_ex_modify_qp>(UVERBS_ATTR_CORE_IN);
  const auto attributes = request.get<QpAttributes>(UVERBS_ATTR_CORE_IN);
  if ((attributes.attr_mask & ~std::uint32_t{kQpStandard | kQpRateLimit}) != 0) return EOPNOTSUPP;
  QueuePair* qp = nullptr;
  if (const auto missing = objects_.find(attributes.qp_handle, qp); missing != 0) return missing;
  if (const auto wrong = change_qp(*qp, attributes, in.rate_limit); wrong != 0) return wrong;
  ib_uverbs_ex_modify_qp_resp out{};
  out.response_length = sizeof out;
  if (const auto wrong = request.put(UVERBS_ATTR_CORE_OUT, out); wrong != 0) return wrong;
  mlx5_ib_modify_qp_resp own{};
  own.response_length = offsetof(mlx5_ib_modify_qp_resp, dctn);
  if (qp->is_target()) {
    // The number that DC initiators need (kernel interface 4.14).
    own.response_length = offsetof(mlx5_ib_modify_qp_resp, ece_options);
    own.dctn = qp->qpn;
  }
  return request.put(UVERBS_ATTR_UHW_OUT, own);
}

Errno QueuePairCommands::query_qp(Request& request) {
  const auto in = request.get<ib_uverbs_query_qp>(UVERBS_ATTR_CORE_IN);
  QueuePair* qp = nullptr;
  if (const auto missing = objects_.find(in.qp_handle, qp); missing != 0) return missing;
  ib_uverbs_query_qp_resp out{};
  if (const auto wrong = uverbs::query_qp(*qp, in.attr_mask, out); wrong != 0) return wrong;
  return request.put(UVERBS_ATTR_CORE_OUT, out);
}

}  // namespace softhca::uverbs
