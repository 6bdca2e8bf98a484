#include "uverbs/transport_qps.h"

#include <utility>

#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::hca_cap;
using spec::qpc;

namespace {

constexpr std::uint32_t kNoUserIndex = 0xffffff;
/// By infiniband::QpType.
constexpr spec::service_type kServices[] = {spec::service_type::RC,  spec::service_type::UC,
                                            spec::service_type::UD,  spec::service_type::XRC,
                                            spec::service_type::XRC, spec::service_type::DCI};

/// Bytes of the receive queue plus the send queue behind it.
std::uint64_t queues_size(const mlx5_ib_create_qp& in) {
  return (std::uint64_t{in.rq_wqe_count} << in.rq_wqe_shift) + in.sq_wqe_count * kSendBlock;
}

Errno check_queues(const Device& device, const mlx5_ib_create_qp& in) {
  constexpr std::uint32_t kFlags = MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SCATTER_CQE |
                                   MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_TYPE_DCI |
                                   MLX5_QP_FLAG_SIGNATURE;
  if (!are_valid(in, kFlags, 1u << device.capabilities().get(hca_cap::log_max_qp_sz)))
    return EINVAL;
  return are_aligned(in.buf_addr, in.db_addr, kWorkRecordAlignment) ? 0 : EINVAL;
}

bool has_wide_entries(const Use& cq) {
  constexpr std::uint32_t kWide = 128;
  return static_cast<const CompletionQueue*>(cq.get())->entry_size == kWide;
}

}  // namespace

TransportQp::TransportQp(Device& the_device, Type type)
    : QueuedQp(the_device),
      type_(type),
      service_(kServices[static_cast<std::size_t>(type)]),
      log_reads_(device.capabilities().get(hca_cap::log_max_ra_req_qp)),
      log_read_answers_(device.capabilities().get(hca_cap::log_max_ra_res_qp)) {}

TransportQp::~TransportQp() {
  if (!exists_) return;
  device.records().remove_send_queue(qpn);
  device.remove_queue_target(qpn);
  destroy_qp(device, qpn);
}

Errno TransportQp::create(const QpCreation& creation) {
  const auto& in = creation.in;
  auto wrong = prepare(creation);
  if (wrong == 0) wrong = check_receive_queue(in);
  if (wrong == 0) wrong = check_queues(device, in);
  if (wrong == 0) wrong = find_queue(creation, queues_size(in));
  if (wrong != 0) return wrong;
  queues_.has_sender = in.sq_wqe_count != 0;
  return make(creation);
}

Errno TransportQp::make(const QpCreation& creation) {
  const auto& in = creation.in;
  Command<spec::create_qp_in> create(
      command_opcode::CREATE_QP, pages_of(in.buf_addr, queues_size(in)) * sizeof(std::uint64_t));
  create.set(spec::create_qp_in::uid, uid);
  const auto context = create.sub(spec::create_qp_in::qpc);
  context.set(qpc::st, static_cast<std::uint32_t>(service_));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
  context.set(qpc::pd, pdn);
  context.set(qpc::uar_page, in.bfreg_index);
  context.set(qpc::page_offset, page_offset_of(in.buf_addr));
  context.set(qpc::user_index, in.uidx);
  context.set(qpc::wq_signature, creation.has_driver_flag(MLX5_QP_FLAG_SIGNATURE));
  context.set(qpc::log_msg_max, device.capabilities().get(hca_cap::log_max_msg));
  if (in.sq_wqe_count == 0) {
    context.set(qpc::no_sq, 1);
  } else {
    context.set(qpc::log_sq_size, log2_of(in.sq_wqe_count));
  }
  auto rq_type = spec::qp_rq_type::ZERO_LENGTH_RQ;
  if (const auto* queue = static_cast<SharedReceiveQueue*>(srq.get()); queue != nullptr) {
    rq_type = spec::qp_rq_type::SRQ;
    context.set(qpc::srqn_rmpn_xrqn, queue->number);
  } else if (in.rq_wqe_count != 0) {
    rq_type = spec::qp_rq_type::NON_ZERO_RQ;
    context.set(qpc::log_rq_size, log2_of(in.rq_wqe_count));
    context.set(qpc::log_rq_stride, in.rq_wqe_shift - kLogStrideMin);
  }
  context.set(qpc::rq_type, static_cast<std::uint32_t>(rq_type));
  context.set(qpc::cqn_snd, send_cqn);
  context.set(qpc::cqn_rcv, receive_cqn);
  context.set(qpc::block_lb_mc, creation.has(IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK));
  context.set(qpc::dbr_addr, Device::bus_address(in.db_addr));
  describe_kind(creation, context);
  store_pages(create.all().subspan(spec::create_qp_in::pas_offset), in.buf_addr);
  const auto out = device.commands().execute<spec::create_qp_out>(create);
  if (!out) return ENOMEM;
  qpn = out->get(spec::create_qp_out::qpn);
  exists_ = true;
  device.add_queue_target(qpn, *this);
  return 0;
}

// Short data go into CQEs (configure_responder_scat_cqe, configure_requester_scat_cqe of mlx5_ib).

void TransportQp::put_receives_in_cqes(const QpCreation& creation, Qpc context) const {
  using Room = spec::qp_cs_res;
  if (!creation.has_driver_flag(MLX5_QP_FLAG_SCATTER_CQE)) return;
  const auto room = has_wide_entries(receive_cq) ? Room::UP_TO_64B : Room::UP_TO_32B;
  context.set(qpc::cs_res, static_cast<std::uint32_t>(room));
}

void TransportQp::put_reads_in_cqes(const QpCreation& creation, Qpc context) const {
  using Room = spec::qp_cs_req;
  const bool completes_all =
      creation.has_driver_flag(MLX5_QP_FLAG_ALLOW_SCATTER_CQE) || signals_all;
  if (!creation.has_driver_flag(MLX5_QP_FLAG_SCATTER_CQE) || !completes_all) return;
  const auto room = has_wide_entries(send_cq) ? Room::UP_TO_64B : Room::UP_TO_32B;
  context.set(qpc::cs_req, static_cast<std::uint32_t>(room));
}

SendDoorbell TransportQp::doorbell() const {
  if (!queues_.has_sender) return {};
  return {.number = qpn, .uar = queues_.uar, .record = queues_.record};
}

void ReliableQp::describe_kind(const QpCreation& creation, Qpc context) const {
  put_receives_in_cqes(creation, context);
  put_reads_in_cqes(creation, context);
}

/// Linux creates these as its own: their domain is the kernel's.
Errno XrcInitiator::find_objects(const QpCreation& creation) {
  const auto missing = find_sender(creation);
  uid = 0;
  return missing;
}

XrcTargetQp::~XrcTargetQp() {
  if (target_ != nullptr) target_->close(*this);
}

Errno XrcTargetQp::find_objects(const QpCreation& creation) {
  XrcDomain* domain = nullptr;
  const auto missing = creation.find(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, domain);
  if (missing != 0) return missing;
  xrcd_ = Use(domain);
  pdn = device.own_pd();
  return 0;
}

Errno XrcTargetQp::create(const QpCreation& creation) {
  auto own = creation;
  own.in = {};
  own.in.uidx = kNoUserIndex;
  auto wrong = prepare(own);
  if (wrong == 0) wrong = make(own);
  if (wrong != 0) return wrong;
  auto& domain = *static_cast<XrcDomain*>(xrcd_.get());
  open(domain, qpn, XrcTarget::share(device, qpn, domain.shared));
  exists_ = false;
  return 0;
}

void XrcTargetQp::open(XrcDomain& domain, std::uint32_t number, std::shared_ptr<XrcTarget> target) {
  xrcd_ = Use(&domain);
  pdn = device.own_pd();
  qpn = number;
  target_ = std::move(target);
  target_->open(*this);
}

void XrcTargetQp::describe_kind(const QpCreation&, Qpc context) const {
  context.set(qpc::xrcd, static_cast<XrcDomain*>(xrcd_.get())->shared->number());
  context.set(qpc::rq_type, static_cast<std::uint32_t>(spec::qp_rq_type::SRQ));
}

DynamicInitiator::DynamicInitiator(Device& the_device)
    : TransportQp(the_device, Type::kDcInitiator) {
  log_reads_ = device.capabilities().get(hca_cap::log_max_ra_req_dc);
  log_read_answers_ = device.capabilities().get(hca_cap::log_max_ra_res_dc);
}

/// It receives nothing, so its receive CQ is optional.
Errno DynamicInitiator::find_objects(const QpCreation& creation) {
  if (const auto missing = find_sender(creation); missing != 0) return missing;
  if (creation.request.has(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)) return find_receiver(creation);
  receive_cqn = send_cqn;
  return 0;
}

/// mlx5_ib's check_qp_attr: it asks for no receives.
Errno DynamicInitiator::check_receive_queue(const mlx5_ib_create_qp& in) {
  const bool receives = caps.max_recv_wr != 0 || caps.max_recv_sge != 0;
  return receives ? EINVAL : TransportQp::check_receive_queue(in);
}

}  // namespace softhca::uverbs
