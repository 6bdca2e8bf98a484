#include "uverbs/queue_pair.h"

#include <bit>

#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/devx_commands.h"
#include "uverbs/doorbell_pages.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

using spec::event_type;
using spec::hca_cap;

namespace {

/// ib_uverbs_qp_create_flags: those of raw packets alone, and all.
constexpr std::uint32_t kFrameFlags = IB_UVERBS_QP_CREATE_SCATTER_FCS |
                                      IB_UVERBS_QP_CREATE_CVLAN_STRIPPING |
                                      IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING;
constexpr std::uint32_t kQpFlags =
    kFrameFlags | IB_UVERBS_QP_CREATE_SQ_SIG_ALL | IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;

/// Values of ib_event_type (kernel interface 6).
std::uint32_t verbs_event(event_type type) {
  enum : std::uint32_t { kFatal = 1, kRequest, kAccess, kEstablished, kDrained, kLastWqe = 16 };
  switch (type) {
    case event_type::COMMUNICATION_ESTABLISHED:
      return kEstablished;
    case event_type::SQ_DRAINED:
      return kDrained;
    case event_type::LAST_WQE_REACHED:
      return kLastWqe;
    case event_type::INVALID_REQUEST_LOCAL_WQ_ERROR:
      return kRequest;
    case event_type::LOCAL_ACCESS_VIOLATION_WQ_ERROR:
      return kAccess;
    default:
      return kFatal;
  }
}

/// Checks ports and states (modify_qp of uverbs_cmd.c). An address vector also sets the port,
/// except on the transition to RTR, where it must match `port`, the QP's.
Errno check_command(QpAttributes& in, std::uint8_t port) {
  const auto has = [&](std::uint32_t attribute) { return (in.attr_mask & attribute) != 0; };
  if (has(kQpPort) && in.port_num != kPort1) return EINVAL;
  if (has(kQpPath)) {
    if (in.dest.port_num != kPort1) return EINVAL;
    if (has(kQpState) && in.qp_state == kQpRtr) {
      if (port != in.dest.port_num) return EINVAL;
    } else if (!has(kQpPort)) {
      in.attr_mask |= kQpPort;
      in.port_num = in.dest.port_num;
    }
  }
  if (has(kQpAlternatePath) && (in.alt_port_num != kPort1 || in.alt_dest.port_num != kPort1)) {
    return EINVAL;
  }
  const bool has_states = (!has(kQpCurrentState) || in.cur_qp_state <= kQpError) &&
                          (!has(kQpState) || in.qp_state <= kQpError);
  return has_states ? 0 : EINVAL;
}

/// The checks of verbs.c's _ib_modify_qp, which refuses alternate paths on RoCE.
Errno check_paths(const Device& device, bool is_connected, QpChange& change) {
  if (change.has(kQpPath)) {
    const auto to = address_vector(change.in.dest);
    if (const auto wrong = check_source(device, to); wrong != 0) return wrong;
    if (is_connected) {
      if (const auto wrong = find_route(device, to, change.route); wrong != 0) return wrong;
      if (const auto& mac_of_qp = device.options().mac_of_qp; mac_of_qp && change.has(kQpDestQpn)) {
        change.route.mac = mac_of_qp(change.route.mac, change.in.dest_qp_num);
      }
    }
  }
  if (!change.has(kQpAlternatePath)) return 0;
  const auto wrong = check_source(device, address_vector(change.in.alt_dest));
  return wrong != 0 ? wrong : EINVAL;
}

}  // namespace

void QueuePair::handle_event(event_type event) { async.report(verbs_event(event)); }

/// The checks of ib_uverbs' check_creation_flags and mlx5_ib's process_create_flags.
Errno QueuePair::prepare(const QpCreation& creation) {
  if (creation.has(~kQpFlags | invalid_flags())) return EINVAL;
  if (creation.has(unsupported_flags())) return EOPNOTSUPP;
  const auto& request = creation.request;
  // Only IPoIB uses underlay QPs.
  if (request.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN)) return EOPNOTSUPP;
  auto wrong = find_objects(creation);
  if (wrong == 0) {
    wrong = creation.file.events.find_async(request, UVERBS_ATTR_CREATE_QP_EVENT_FD, async.file);
  }
  if (wrong != 0) return wrong;
  async.user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
  caps = request.get<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
  signals_all = creation.has(IB_UVERBS_QP_CREATE_SQ_SIG_ALL);
  return 0;
}

std::uint32_t QueuePair::invalid_flags() const {
  return ~std::uint32_t{IB_UVERBS_QP_CREATE_SQ_SIG_ALL};
}

std::uint32_t QueuePair::unsupported_flags() const { return kFrameFlags; }

Errno QueuePair::find_objects(const QpCreation& creation) {
  const auto missing = find_sender(creation);
  return missing != 0 ? missing : find_receiver(creation);
}

Errno QueuePair::find_sender(const QpCreation& creation) {
  ProtectionDomain* domain = nullptr;
  CompletionQueue* cq = nullptr;
  auto missing = creation.find(UVERBS_ATTR_CREATE_QP_PD_HANDLE, domain);
  if (missing == 0) missing = creation.find(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq);
  if (missing != 0) return missing;
  uid = creation.file.user.uid();
  pd = Use(domain);
  pdn = domain->pdn;
  send_cq = Use(cq);
  send_cqn = cq->cqn;
  return 0;
}

Errno QueuePair::find_receiver(const QpCreation& creation) {
  CompletionQueue* cq = nullptr;
  SharedReceiveQueue* queue = nullptr;
  auto missing = creation.find(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq);
  if (missing != 0) return missing;
  receive_cq = Use(cq);
  receive_cqn = cq->cqn;
  if (!creation.request.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)) return 0;
  missing = creation.find(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, queue);
  if (missing != 0) return missing;
  if (queue->is_xrc) return EINVAL;
  srq = Use(queue);
  return 0;
}

Errno QueuePair::modify(QpAttributes in, std::uint32_t rate_limit) {
  if (const auto wrong = check_command(in, condition().port); wrong != 0) return wrong;
  in.attr_mask = relevant_mask(in.attr_mask);
  QpChange change{.in = in, .rate_limit = rate_limit};
  const auto wrong = check_paths(device, is_connected(), change);
  return wrong != 0 ? wrong : apply(change);
}

void QueuePair::fail() {
  if (condition().state == kQpError) return;
  QpAttributes wanted{};
  wanted.attr_mask = kQpState;
  wanted.qp_state = kQpError;
  (void)modify(wanted);
  handle_event(event_type::LOCAL_ACCESS_VIOLATION_WQ_ERROR);
}

bool QueuePair::has_name(const DevxName& name) const {
  return name == DevxName{spec::object_kind::QP, qpn};
}

bool are_valid(const mlx5_ib_create_qp& in, std::uint32_t flags, std::uint32_t most) {
  const auto is_size = [&](std::uint32_t count) {
    return count == 0 || (std::has_single_bit(count) && count <= most);
  };
  const bool good_stride = in.rq_wqe_count == 0 ||
                           (in.rq_wqe_shift >= kLogStrideMin && in.rq_wqe_shift <= kLogStrideMax);
  return (in.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) != 0 && (in.flags & ~flags) == 0 &&
         is_size(in.sq_wqe_count) && is_size(in.rq_wqe_count) && good_stride;
}

/// mlx5_ib's set_rq_size: without receive requests there is no receive queue, whatever space the
/// program has reserved.
Errno QueuedQp::check_receive_queue(const mlx5_ib_create_qp& in) {
  if (caps.max_recv_wr > 1u << device.capabilities().get(hca_cap::log_max_qp_sz)) return EINVAL;
  if (has_own_receiver() && caps.max_recv_wr != 0) return 0;
  caps.max_recv_wr = caps.max_recv_sge = 0;
  return in.rq_wqe_count != 0 || in.rq_wqe_shift != 0 ? EINVAL : 0;
}

Errno QueuedQp::find_queue(const QpCreation& creation, std::uint64_t size) {
  const auto& in = creation.in;
  const auto& memory = creation.file.memory;
  if (!are_there(memory, in.buf_addr, size, in.db_addr)) return EFAULT;
  auto* const page = find_page(creation.file.objects, in.bfreg_index);
  if (page == nullptr) return EINVAL;
  if (const auto wrong = queues_.locked.take(memory.locked(), in.buf_addr, size); wrong != 0) {
    return wrong;
  }
  queues_.page = Use(page);
  queues_.uar = in.bfreg_index;
  queues_.record = in.db_addr;
  queues_.range = {.begin = in.buf_addr, .size = size};
  queues_.receive_entries = in.rq_wqe_count;
  queues_.receive_sges = receive_sges(in);
  return 0;
}

bool QueuedQp::lies_in(std::uint64_t page) const {
  const MemoryRange record{.begin = queues_.record, .size = kRecordSize};
  return queues_.range.touches(page) || queues_.send_range.touches(page) || record.touches(page);
}

Errno QueuedQp::apply(QpChange& change) {
  auto& known = condition();
  change.from = change.has(kQpCurrentState) ? change.in.cur_qp_state : known.state;
  change.to = change.has(kQpState) ? change.in.qp_state : change.from;
  if (!takes(change.from, change.to, change.in.attr_mask)) return EINVAL;
  if (change.from == kQpReset && change.to == kQpReset) return 0;
  if (const auto wrong = move(change); wrong != 0) return wrong;
  known.state = change.to;
  if (change.has(kQpAccess)) known.access = change.in.qp_access_flags;
  if (change.has(kQpMaxDestReads)) known.responder_depth = change.in.max_dest_rd_atomic;
  if (change.has(kQpPort)) known.port = change.in.port_num;
  if (change.has(kQpPath)) known.source = GidUse(device, change.in.dest.sgid_index);
  return 0;
}

Errno QueuedQp::query(std::uint32_t, ib_uverbs_query_qp_resp& out) {
  if (const auto wrong = read(out); wrong != 0) return wrong;
  out.qp_state = out.cur_qp_state = condition().state;
  // libmlx5 knows the send queue's size itself.
  out.max_recv_wr = queues_.receive_entries;
  out.max_recv_sge = queues_.receive_sges;
  out.sq_sig_all = signals_all;
  return 0;
}

}  // namespace softhca::uverbs
