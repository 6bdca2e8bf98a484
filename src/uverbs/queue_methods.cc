// CQs and QPs in memory of the program (host-door contract 4.6, 4.7).
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "spec/connectx/cq.h"
#include "spec/connectx/qp.h"
#include "uverbs/context.h"
#include "uverbs/device_command.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::hca_cap;

namespace {

constexpr std::uint64_t kSendBlock = 64;
constexpr std::uint32_t kNoUserIndex = 0xffffff;
constexpr std::uint32_t kModerate = 1;  // of ib_cq_attr_mask
constexpr std::uint16_t kModerationPeriodMax = 0xfff;
constexpr unsigned kLogReceiveUnit = 4;
constexpr unsigned kLogReceiveMax = 9;

/// ib_uverbs_qp_create_flags: those that there are, and those that QPs with requests of RDMA have.
constexpr std::uint32_t kQpFlags =
    IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SCATTER_FCS |
    IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
    IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
constexpr std::uint32_t kRdmaQpFlags =
    IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SQ_SIG_ALL;

/// CREATE_CQ. False if the device refuses.
bool make_cq(CompletionQueue& cq, const mlx5_ib_create_cq& in, bool ignores_overrun) {
  auto& device = cq.device;
  const auto size = std::uint64_t{cq.entries} * in.cqe_size;
  Command<spec::create_cq_in> create(command_opcode::CREATE_CQ,
                                     pages_of(in.buf_addr, size) * sizeof(std::uint64_t));
  create.set(spec::create_cq_in::uid, cq.uid);
  using Cqc = spec::cq_context;
  const auto context = create.sub(spec::create_cq_in::cq_context_entry);
  context.set(Cqc::log_cq_size, log2_of(cq.entries));
  context.set(Cqc::cqe_sz, cq.size_code());
  context.set(Cqc::page_offset, page_offset_of(in.buf_addr));
  context.set(Cqc::uar_page, in.uar_page_index);
  context.set(Cqc::c_eqn, device.hca().completion_events().eqn());
  context.set(Cqc::oi, ignores_overrun);
  context.set(Cqc::dbr_addr, Device::bus_address(in.db_addr));
  store_pages(create.all().subspan(spec::create_cq_in::pas_offset), in.buf_addr);
  const auto out = device.commands().execute<spec::create_cq_out>(create);
  if (!out) return false;
  cq.cqn = out->get(spec::create_cq_out::cqn);
  cq.exists = true;
  device.add_completion_target(cq.cqn, cq);
  // Who has no channel hears of nothing, whether the CQ is armed or not.
  if (cq.channel != nullptr) {
    device.records().add_completion_queue(cq.cqn, in.uar_page_index,
                                          reinterpret_cast<std::uint32_t*>(in.db_addr + 4));
  }
  return true;
}

std::uint64_t receive_size(const mlx5_ib_create_qp& in) {
  return std::uint64_t{in.rq_wqe_count} << in.rq_wqe_shift;
}
/// Bytes of both queues: the receive queue, and behind it the send queue.
std::uint64_t queues_size(const mlx5_ib_create_qp& in) {
  return receive_size(in) + in.sq_wqe_count * kSendBlock;
}

Errno check_queues(const Device& device, const mlx5_ib_create_qp& in) {
  constexpr std::uint32_t kFlags = MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SCATTER_CQE |
                                   MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_TYPE_DCI;
  if ((in.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) == 0 || (in.flags & ~kFlags) != 0) {
    return EOPNOTSUPP;
  }
  const auto most = 1u << device.capabilities().get(hca_cap::log_max_qp_sz);
  const auto is_size = [&](std::uint32_t count) {
    return count == 0 || (std::has_single_bit(count) && count <= most);
  };
  const bool good_stride = in.rq_wqe_count == 0 || (in.rq_wqe_shift >= kLogReceiveUnit &&
                                                    in.rq_wqe_shift <= kLogReceiveMax);
  if (!is_size(in.sq_wqe_count) || !is_size(in.rq_wqe_count) || !good_stride) return EINVAL;
  return in.buf_addr % kPagePart != 0 || in.db_addr % 8 != 0 ? EINVAL : 0;
}

/// CREATE_QP. False if the device refuses.
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
  context.set(Qpc::cqn_snd, qp.send_cqn);
  context.set(Qpc::cqn_rcv, qp.receive_cqn);
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

DoorbellPage* Context::find_page(std::uint32_t page) const {
  return objects_.find_if<DoorbellPage>([&](const DoorbellPage& one) { return one.page == page; });
}

Errno Context::create_cq(Request& request) {
  const auto in = request.get<mlx5_ib_create_cq>(UVERBS_ATTR_UHW_IN);
  const auto wanted = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
  const auto caps = device_.capabilities();
  if (wanted == 0 || wanted >= 1u << caps.get(hca_cap::log_max_cq_sz)) return EINVAL;
  if (in.cqe_size != 64 && in.cqe_size != 128) return EINVAL;
  constexpr std::uint32_t kPadded = MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;
  if (in.cqe_comp_en != 0 ||
      (in.flags & ~(MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | kPadded)) != 0) {
    return EOPNOTSUPP;
  }
  const bool padded = (in.flags & kPadded) != 0;
  if (padded && (in.cqe_size != 128 || caps.get(hca_cap::cqe_128_always) == 0)) return EOPNOTSUPP;
  if ((in.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) == 0) return EOPNOTSUPP;
  if (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR) != 0) return EINVAL;
  auto* const page = find_page(in.uar_page_index);
  if (page == nullptr) return EINVAL;
  auto cq = std::make_unique<CompletionQueue>(device_);
  cq->uid = uid_;
  cq->uar = Use(page);
  if (request.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
    const auto number = request.number(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
    const auto channel = channels_.find(options_.identify(static_cast<int>(number)));
    if (channel == channels_.end()) return EBADF;
    cq->channel = channel->second;
  }
  cq->entries = std::bit_ceil(wanted + 1);
  cq->user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
  cq->async.file = async_;
  cq->async.user_handle = cq->user_handle;
  cq->entry_size = in.cqe_size;
  cq->padded = padded;
  const auto size = std::uint64_t{cq->entries} * in.cqe_size;
  if (in.buf_addr % kPagePart != 0 || in.db_addr % 8 != 0 ||
      !is_there(memory_, in.buf_addr, size) || !is_there(memory_, in.db_addr, 8)) {
    return EFAULT;
  }
  cq->record = in.db_addr;
  cq->entries_memory = {.begin = in.buf_addr, .size = size};
  if (!make_cq(*cq, in,
               (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS) &
                IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0)) {
    return ENOMEM;
  }
  const auto cqn = cq->cqn;
  const auto user_handle = cq->user_handle;
  const std::uint32_t last = cq->entries - 1;
  const auto handle = objects_.add(std::move(cq));
  auto wrong = request.put_number(UVERBS_ATTR_CREATE_CQ_HANDLE, handle);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last);
  if (wrong == 0) {
    wrong = request.put(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{.cqn = cqn, .reserved = 0});
  }
  if (wrong != 0) {
    objects_.remove(handle);
  } else if (options_.made_cq) {
    options_.made_cq(user_handle);
  }
  return wrong;
}

Errno Context::destroy_cq(Request& request) {
  const auto handle = request.number(UVERBS_ATTR_DESTROY_CQ_HANDLE);
  auto* cq = objects_.find<CompletionQueue>(handle);
  if (cq == nullptr) return ENOENT;
  if (cq->users != 0) return EBUSY;
  if (const auto wrong = cq->end(); wrong != 0) return wrong;
  // What nobody has read is taken back; for what was read the program waits to be acknowledged.
  const auto unread = cq->channel == nullptr ? 0 : cq->channel->pipe.take_back(cq->user_handle);
  const ib_uverbs_destroy_cq_resp out{
      .comp_events_reported = cq->completions_told - static_cast<std::uint32_t>(unread),
      .async_events_reported = cq->async.take_back()};
  objects_.remove(handle);
  return request.put(UVERBS_ATTR_DESTROY_CQ_RESP, out);
}

Errno Context::find_qp_objects(const Request& request, QueuePair& qp) {
  const auto number = [&](std::uint16_t id) { return request.number(id); };
  if (qp.type == IB_UVERBS_QPT_XRC_TGT) {
    auto* xrcd = objects_.find<XrcDomain>(number(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE));
    if (xrcd == nullptr) return ENOENT;
    qp.xrcd = Use(xrcd);
    qp.pdn = device_.own_pd();
    return 0;
  }
  auto* pd = objects_.find<ProtectionDomain>(number(UVERBS_ATTR_CREATE_QP_PD_HANDLE));
  auto* send_cq = objects_.find<CompletionQueue>(number(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE));
  if (pd == nullptr || send_cq == nullptr) return ENOENT;
  qp.uid = uid_;
  qp.pd = Use(pd);
  qp.pdn = pd->pdn;
  qp.send_cq = Use(send_cq);
  qp.send_cqn = send_cq->cqn;
  if (qp.type == IB_UVERBS_QPT_XRC_INI) return 0;
  // An initiator of dynamic connections receives nothing, and may be without.
  if (qp.service == spec::service_type::DCI && !request.has(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)) {
    qp.receive_cqn = qp.send_cqn;
    return 0;
  }
  auto* receive_cq = objects_.find<CompletionQueue>(number(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE));
  if (receive_cq == nullptr) return ENOENT;
  qp.receive_cq = Use(receive_cq);
  qp.receive_cqn = receive_cq->cqn;
  if (!request.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)) return 0;
  auto* srq = objects_.find<SharedQueue>(number(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE));
  if (srq == nullptr) return ENOENT;
  if (srq->is_xrc) return EINVAL;
  qp.srq = Use(srq);
  return 0;
}

/// Its queues in memory of the program. A target of XRC has none.
Errno Context::find_qp_memory(QueuePair& qp, const mlx5_ib_create_qp& in) {
  if (const auto wrong = check_queues(device_, in); wrong != 0) return wrong;
  const auto size = queues_size(in);
  if (!is_there(memory_, in.buf_addr, size) || !is_there(memory_, in.db_addr, 8)) return EFAULT;
  auto* const page = find_page(in.bfreg_index);
  if (page == nullptr) return EINVAL;
  qp.doorbells = Use(page);
  qp.uar = in.bfreg_index;
  qp.record = in.db_addr;
  qp.queues = {.begin = in.buf_addr, .size = size};
  qp.has_send_queue = in.sq_wqe_count != 0;
  qp.receive_entries = in.rq_wqe_count;
  return 0;
}

Errno Context::create_qp(Request& request) {
  if (request.has(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE)) return create_scaling_qp(request);
  const auto type = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_TYPE);
  mlx5_ib_create_qp in{};
  if (type != IB_UVERBS_QPT_XRC_TGT) in = request.get<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN);
  const bool is_raw = type == IB_UVERBS_QPT_RAW_PACKET;
  const auto service = is_raw ? spec::service_type::RAW_ETHERTYPE : service_of(type, in.flags);
  if (!service) return EOPNOTSUPP;
  auto qp = std::make_unique<QueuePair>(device_);
  qp->type = static_cast<std::uint8_t>(type);
  qp->service = *service;
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
  if ((flags & ~kQpFlags) != 0) return EINVAL;
  if (!is_raw && (flags & ~kRdmaQpFlags) != 0) return EOPNOTSUPP;
  if (const auto wrong = find_qp_objects(request, *qp); wrong != 0) return wrong;
  if (is_raw) {
    if (const auto wrong = make_raw_packet_qp(*qp, in, flags); wrong != 0) return wrong;
  } else if (type == IB_UVERBS_QPT_XRC_TGT) {
    in.uidx = kNoUserIndex;
  } else if (qp->is_target()) {
    if (const auto wrong = describe_target(*qp, in); wrong != 0) return wrong;
  } else if (const auto wrong = find_qp_memory(*qp, in); wrong != 0) {
    return wrong;
  }
  qp->async.file = async_;
  qp->async.user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
  qp->caps = request.get<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
  qp->signals_all = (flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0;
  if (!is_raw && !qp->is_target() && !make_qp(*qp, in, flags)) return ENOMEM;
  if (type == IB_UVERBS_QPT_XRC_TGT) qp->share_xrc_target();
  const auto qpn = qp->qpn;
  const auto caps = qp->caps;
  mlx5_ib_create_qp_resp own{};
  own.bfreg_index = UINT32_MAX;  // a page was named
  if (is_raw) tell_of_raw_packet_qp(*qp, own);
  const auto handle = objects_.add(std::move(qp));
  auto wrong = request.put_number(UVERBS_ATTR_CREATE_QP_HANDLE, handle);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_CREATE_QP_RESP_CAP, caps);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_UHW_OUT, own);
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

Errno Context::destroy_qp(Request& request) {
  const auto handle = request.number(UVERBS_ATTR_DESTROY_QP_HANDLE);
  auto* qp = objects_.find<QueuePair>(handle);
  if (qp == nullptr) return ENOENT;
  if (qp->users != 0) return EBUSY;
  const ib_uverbs_destroy_qp_resp out{.events_reported = qp->async.take_back()};
  objects_.remove(handle);
  return request.put(UVERBS_ATTR_DESTROY_QP_RESP, out);
}

namespace {

constexpr std::uint32_t bit(auto position) { return 1u << static_cast<unsigned>(position); }

}  // namespace

Errno Context::resize_cq(Request& request) {
  const auto in = request.get<ib_uverbs_resize_cq>(UVERBS_ATTR_CORE_IN);
  const auto own = request.get<mlx5_ib_resize_cq>(UVERBS_ATTR_UHW_IN);
  auto* cq = objects_.find<CompletionQueue>(in.cq_handle);
  if (cq == nullptr || in.cqe == 0 ||
      in.cqe >= 1u << device_.capabilities().get(hca_cap::log_max_cq_sz)) {
    return EINVAL;
  }
  const std::uint32_t entries = std::bit_ceil(in.cqe + 1);
  const auto size = std::uint64_t{entries} * own.cqe_size;
  if (own.cqe_size != cq->entry_size) return EINVAL;
  if (own.buf_addr % kPagePart != 0 || !is_there(memory_, own.buf_addr, size)) return EFAULT;
  using Field = spec::resize_cq_field_bit;
  Command<spec::modify_cq_in> command(command_opcode::MODIFY_CQ,
                                      pages_of(own.buf_addr, size) * sizeof(std::uint64_t));
  command.set(spec::modify_cq_in::op_mod,
              static_cast<std::uint32_t>(spec::modify_cq_op_mod::RESIZE));
  command.set(spec::modify_cq_in::cqn, cq->cqn);
  command.set(spec::modify_cq_in::modify_field_select,
              bit(Field::LOG_CQ_SIZE) | bit(Field::PAGE_OFFSET) | bit(Field::LOG_PAGE_SIZE));
  const auto context = command.sub(spec::modify_cq_in::cq_context_entry);
  context.set(spec::cq_context::log_cq_size, log2_of(entries));
  context.set(spec::cq_context::cqe_sz, cq->size_code());
  context.set(spec::cq_context::page_offset, page_offset_of(own.buf_addr));
  store_pages(command.all().subspan(spec::modify_cq_in::pas_offset), own.buf_addr);
  if (!device_.commands().run(command)) return EINVAL;
  cq->entries = entries;
  cq->entries_memory = {.begin = own.buf_addr, .size = size};
  return request.put(UVERBS_ATTR_CORE_OUT,
                     ib_uverbs_resize_cq_resp{.cqe = entries - 1, .reserved = 0});
}

Errno Context::modify_cq(Request& request) {
  const auto in = request.get<ib_uverbs_ex_modify_cq>(UVERBS_ATTR_CORE_IN);
  auto* cq = objects_.find<CompletionQueue>(in.cq_handle);
  if (cq == nullptr || in.attr_mask == 0) return EINVAL;
  if ((in.attr_mask & ~kModerate) != 0) return EOPNOTSUPP;
  using Field = spec::modify_cq_field_bit;
  Command<spec::modify_cq_in> command(command_opcode::MODIFY_CQ);
  command.set(spec::modify_cq_in::cqn, cq->cqn);
  command.set(spec::modify_cq_in::modify_field_select,
              bit(Field::CQ_PERIOD) | bit(Field::CQ_MAX_COUNT));
  const auto context = command.sub(spec::modify_cq_in::cq_context_entry);
  if (in.attr.cq_period > kModerationPeriodMax) return EINVAL;
  context.set(spec::cq_context::cq_period, in.attr.cq_period);
  context.set(spec::cq_context::cq_max_count, in.attr.cq_count);
  return device_.commands().run(command) ? 0 : EINVAL;
}

}  // namespace softhca::uverbs
