#include "uverbs/raw_packet_qps.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>
#include <memory>

#include "spec/connectx/resources.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/doorbell_pages.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

using spec::hca_cap;

namespace {

constexpr std::uint32_t kStripVlan = IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
/// The flags allowed. Own multicast is received only on request, so blocking it changes nothing.
constexpr std::uint32_t kCreateFlags =
    kStripVlan | IB_UVERBS_QP_CREATE_SQ_SIG_ALL | IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;

Errno check(const Device& device, const mlx5_ib_create_qp& in) {
  // mlx5_ib accepts the flag for signatures, but its SQ and RQ do not check any.
  constexpr std::uint32_t kFlags = MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SIGNATURE |
                                   MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                   kHearItself | kHearOwnMulticast;
  if ((in.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) == 0 || (in.flags & ~kFlags) != 0) return EINVAL;
  const auto most = 1u << device.capabilities().get(hca_cap::log_max_wq_sz);
  const auto is_size = [&](std::uint32_t count) {
    return count == 0 || (std::has_single_bit(count) && count <= most);
  };
  const bool good_stride = in.rq_wqe_count == 0 ||
                           (in.rq_wqe_shift >= kLogStrideMin && in.rq_wqe_shift <= kLogStrideMax);
  if (!is_size(in.sq_wqe_count) || !is_size(in.rq_wqe_count) || !good_stride) return EINVAL;
  if (in.sq_wqe_count == 0 && in.rq_wqe_count == 0) return EINVAL;
  const bool placed =
      is_place_of_wq(in.buf_addr, in.db_addr) && is_place_of_wq(in.sq_buf_addr, in.db_addr);
  return placed ? 0 : EINVAL;
}

}  // namespace

Errno make_raw_packet_qp(const OpenFile& file, QueuePair& qp, const mlx5_ib_create_qp& in,
                         std::uint32_t flags) {
  if ((flags & ~kCreateFlags) != 0) return EOPNOTSUPP;
  if (const auto wrong = check(file.device, in); wrong != 0) return wrong;
  const auto send_size = in.sq_wqe_count * kSendBlock;
  const auto receive_size = std::uint64_t{in.rq_wqe_count} << in.rq_wqe_shift;
  if (!is_there(file.memory, in.buf_addr, receive_size) ||
      !is_there(file.memory, in.sq_buf_addr, send_size) ||
      !is_there(file.memory, in.db_addr, kRecordSize)) {
    return EFAULT;
  }
  auto* const page = find_page(file.objects, in.bfreg_index);
  if (page == nullptr) return EINVAL;
  auto wrong = qp.queues.send_locked.take(file.memory.locked(), in.sq_buf_addr, send_size);
  if (wrong == 0) wrong = qp.queues.locked.take(file.memory.locked(), in.buf_addr, receive_size);
  if (wrong != 0) return wrong;
  if (file.user.transport_domain() == 0) return ENOMEM;
  qp.queues.page = Use(page);
  qp.queues.uar = in.bfreg_index;
  qp.queues.record = in.db_addr;
  qp.queues.range = {.begin = in.buf_addr, .size = receive_size};
  qp.queues.send_range = {.begin = in.sq_buf_addr, .size = send_size};
  qp.queues.receive_entries = in.rq_wqe_count;
  qp.queues.receive_sges = receive_sges(in);
  qp.raw = std::make_unique<RawPacketQueues>(
      file.device,
      RawPacketQueues::Options{.uid = file.user.uid(),
                               .transport_domain = file.user.transport_domain(),
                               .pdn = qp.pdn,
                               .send_cqn = qp.send_cqn,
                               .receive_cqn = qp.receive_cqn,
                               .user_index = in.uidx,
                               .uar = in.bfreg_index,
                               .record = in.db_addr,
                               .send_queue = in.sq_buf_addr,
                               .receive_queue = in.buf_addr,
                               .send_blocks = in.sq_wqe_count,
                               .receive_entries = in.rq_wqe_count,
                               .log_receive_stride = in.rq_wqe_shift,
                               .hears_itself = (in.flags & kHearItself) != 0,
                               .hears_own_multicast = (in.flags & kHearOwnMulticast) != 0,
                               .strips_vlan = (flags & kStripVlan) != 0});
  if (!qp.raw->make()) return ENOMEM;
  qp.qpn = qp.raw->sqn() != 0 ? qp.raw->sqn() : qp.raw->rqn();
  if (qp.raw->sqn() != 0) file.device.add_queue_target(qp.raw->sqn(), qp);
  if (qp.raw->rqn() != 0) file.device.add_queue_target(qp.raw->rqn(), qp);
  return 0;
}

void tell_of_raw_packet_qp(const QueuePair& qp, mlx5_ib_create_qp_resp& out) {
  const auto tell = [&](std::uint32_t number, __u32 mlx5_ib_create_qp_resp::* field, auto bit) {
    if (number == 0) return;
    out.*field = number;
    out.comp_mask |= static_cast<std::uint32_t>(bit);
  };
  using Out = mlx5_ib_create_qp_resp;
  tell(qp.raw->tirn(), &Out::tirn, MLX5_IB_CREATE_QP_RESP_MASK_TIRN);
  tell(qp.raw->tisn(), &Out::tisn, MLX5_IB_CREATE_QP_RESP_MASK_TISN);
  tell(qp.raw->rqn(), &Out::rqn, MLX5_IB_CREATE_QP_RESP_MASK_RQN);
  tell(qp.raw->sqn(), &Out::sqn, MLX5_IB_CREATE_QP_RESP_MASK_SQN);
}

}  // namespace softhca::uverbs
