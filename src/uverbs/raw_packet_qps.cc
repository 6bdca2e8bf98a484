#include "uverbs/raw_packet_qps.h"

#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/devx_commands.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

using spec::hca_cap;
using spec::rq_state;
using spec::sq_state;
using Op = spec::command_opcode;

namespace {

constexpr unsigned kLogSendBlock = 6;
constexpr std::uint32_t kStripVlan = IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
/// The flags allowed. Own multicast is received only on request, so blocking it changes nothing.
constexpr std::uint32_t kRawFlags =
    kStripVlan | IB_UVERBS_QP_CREATE_SQ_SIG_ALL | IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;

Errno check_raw_queues(const Device& device, const mlx5_ib_create_qp& in) {
  // mlx5_ib accepts the flag for signatures, but its SQ and RQ do not check any.
  constexpr std::uint32_t kFlags = MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SIGNATURE |
                                   MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                   kHearItself | kHearOwnMulticast;
  if (!are_valid(in, kFlags, 1u << device.capabilities().get(hca_cap::log_max_wq_sz)))
    return EINVAL;
  if (in.sq_wqe_count == 0 && in.rq_wqe_count == 0) return EINVAL;
  const bool placed =
      is_place_of_wq(in.buf_addr, in.db_addr) && is_place_of_wq(in.sq_buf_addr, in.db_addr);
  return placed ? 0 : EINVAL;
}

}  // namespace

Errno RawPacketQp::create(const QpCreation& creation) {
  const auto& in = creation.in;
  const auto& memory = creation.file.memory;
  auto wrong = prepare(creation);
  if (wrong == 0) wrong = check_receive_queue(in);
  if (wrong == 0 && creation.has(~kRawFlags)) wrong = EOPNOTSUPP;
  if (wrong == 0) wrong = check_raw_queues(device, in);
  if (wrong != 0) return wrong;
  const auto send_size = in.sq_wqe_count * kSendBlock;
  if (!is_there(memory, in.sq_buf_addr, send_size)) return EFAULT;
  wrong = find_queue(creation, std::uint64_t{in.rq_wqe_count} << in.rq_wqe_shift);
  if (wrong == 0) wrong = queues_.send_locked.take(memory.locked(), in.sq_buf_addr, send_size);
  if (wrong != 0) return wrong;
  queues_.send_range = {.begin = in.sq_buf_addr, .size = send_size};
  if (creation.file.user.transport_domain() == 0) return ENOMEM;
  if (in.sq_wqe_count != 0 && !make_sender(creation)) return ENOMEM;
  if (in.rq_wqe_count != 0 && !make_receiver(creation)) return ENOMEM;
  qpn = sqn_ != 0 ? sqn_ : receiver_.number();
  return 0;
}

bool RawPacketQp::make_sender(const QpCreation& creation) {
  const auto& request = creation.in;
  using Tis = spec::create_tis_in;
  Command<Tis> tis(Op::CREATE_TIS);
  tis.set(Tis::uid, uid);
  tis.sub(Tis::tis_context)
      .set(spec::tis_context::transport_domain, creation.file.user.transport_domain());
  const auto tis_out = device.commands().execute<spec::create_tis_out>(tis);
  if (!tis_out) return false;
  tisn_ = tis_out->get(spec::create_tis_out::tisn);

  using In = spec::create_sq_in;
  using Sq = spec::sq_context;
  const auto [begin, size] = queues_.send_range;
  Command<In> in(Op::CREATE_SQ, pages_of(begin, size) * sizeof(std::uint64_t));
  in.set(In::uid, uid);
  const auto context = in.sub(In::sq_context);
  context.set(Sq::flush_in_error_en, 1);
  context.set(Sq::user_index, request.uidx);
  context.set(Sq::cqn, send_cqn);
  context.set(Sq::tis_lst_sz, 1);
  context.set(Sq::tis_num, tisn_);
  const auto wq = context.sub(Sq::wq);
  wq.set(spec::wq::wq_type, static_cast<std::uint32_t>(spec::wq_type::CYCLIC));
  wq.set(spec::wq::pd, pdn);
  wq.set(spec::wq::uar_page, request.bfreg_index);
  wq.set(spec::wq::dbr_addr, Device::bus_address(request.db_addr));
  wq.set(spec::wq::log_wq_stride, kLogSendBlock);
  wq.set(spec::wq::log_wq_sz, log2_of(request.sq_wqe_count));
  wq.set(spec::wq::page_offset, page_offset_of(begin));
  store_pages(in.all().subspan(In::kSize), begin);
  const auto out = device.commands().execute<spec::create_sq_out>(in);
  if (!out) return false;
  sqn_ = out->get(spec::create_sq_out::sqn);
  device.add_queue_target(sqn_, *this);
  return true;
}

bool RawPacketQp::make_receiver(const QpCreation& creation) {
  const auto& in = creation.in;
  const bool made = receiver_.make({.uid = uid,
                                    .pdn = pdn,
                                    .cqn = receive_cqn,
                                    .user_index = in.uidx,
                                    .record = in.db_addr,
                                    .queue = in.buf_addr,
                                    .entries = in.rq_wqe_count,
                                    .log_stride = in.rq_wqe_shift,
                                    .strips_vlan = creation.has(kStripVlan)});
  if (!made) return false;
  device.add_queue_target(receiver_.number(), *this);
  using Tir = spec::create_tir_in;
  Command<Tir> tir(Op::CREATE_TIR);
  tir.set(Tir::uid, uid);
  const auto to = tir.sub(Tir::tir_context);
  to.set(spec::tir_context::disp_type, static_cast<std::uint32_t>(spec::tir_disp_type::DIRECT));
  to.set(spec::tir_context::inline_rqn, receiver_.number());
  to.set(spec::tir_context::transport_domain, creation.file.user.transport_domain());
  to.set(spec::tir_context::self_lb_en_unicast, creation.has_driver_flag(kHearItself));
  to.set(spec::tir_context::self_lb_en_multicast, creation.has_driver_flag(kHearOwnMulticast));
  const auto tir_out = device.commands().execute<spec::create_tir_out>(tir);
  if (!tir_out) return false;
  tirn_ = tir_out->get(spec::create_tir_out::tirn);
  return true;
}

RawPacketQp::~RawPacketQp() {
  device.remove_queue_target(sqn_);
  device.remove_queue_target(receiver_.number());
  device.records().remove_send_queue(sqn_);
  const auto end = [&](auto& in, auto field, std::uint32_t number) {
    if (number == 0) return;
    in.set(field, number);
    report(device.commands().run(in));
  };
  Command<spec::destroy_tir_in> tir(Op::DESTROY_TIR);
  end(tir, spec::destroy_tir_in::tirn, tirn_);
  Command<spec::destroy_sq_in> sq(Op::DESTROY_SQ);
  end(sq, spec::destroy_sq_in::sqn, sqn_);
  Command<spec::destroy_tis_in> tis(Op::DESTROY_TIS);
  end(tis, spec::destroy_tis_in::tisn, tisn_);
}

void RawPacketQp::put_numbers(mlx5_ib_create_qp_resp& out) const {
  const auto put = [&](std::uint32_t number, __u32 mlx5_ib_create_qp_resp::* field, auto bit) {
    if (number == 0) return;
    out.*field = number;
    out.comp_mask |= static_cast<std::uint32_t>(bit);
  };
  using Out = mlx5_ib_create_qp_resp;
  put(tirn_, &Out::tirn, MLX5_IB_CREATE_QP_RESP_MASK_TIRN);
  put(tisn_, &Out::tisn, MLX5_IB_CREATE_QP_RESP_MASK_TISN);
  put(receiver_.number(), &Out::rqn, MLX5_IB_CREATE_QP_RESP_MASK_RQN);
  put(sqn_, &Out::sqn, MLX5_IB_CREATE_QP_RESP_MASK_SQN);
}

bool RawPacketQp::has_name(const DevxName& name) const {
  return name == DevxName{spec::object_kind::SQ, sqn_} ||
         name == DevxName{spec::object_kind::RQ, receiver_.number()} ||
         name == DevxName{spec::object_kind::TIS, tisn_} ||
         name == DevxName{spec::object_kind::TIR, tirn_};
}

/// mlx5_ib names the states that it remembers from its last command or query. A card need not check
/// them (PRM Table 128), and DPDK resets a failed queue without a query: so the true states are
/// named here.
Errno RawPacketQp::move(const QpChange& change) {
  // A ConnectX-4 has no rate limits per send queue.
  if (change.has(kQpRateLimit) && change.rate_limit != 0) return EOPNOTSUPP;
  const auto both = [&](rq_state receiver, sq_state sender) {
    return receiver_.change(receiver) && change_sender(sender) ? 0 : EINVAL;
  };
  if (change.to == kQpReset) return both(rq_state::RST, sq_state::RST);
  if (change.to == kQpError) return both(rq_state::ERR, sq_state::ERR);
  if (change.from == kQpReset) return receiver_.change(rq_state::RDY) ? 0 : EINVAL;
  return change.to != kQpRts || change_sender(sq_state::RDY) ? 0 : EINVAL;
}

bool RawPacketQp::change_sender(sq_state to) {
  if (sqn_ == 0 || to == send_state_) return true;
  using In = spec::modify_sq_in;
  Command<In> in(Op::MODIFY_SQ);
  in.set(In::sqn, sqn_);
  const auto from = sender_state() == sq_state::ERR ? sq_state::ERR : send_state_;
  in.set(In::sq_state, static_cast<std::uint32_t>(from));
  in.sub(In::sq_context).set(spec::sq_context::state, static_cast<std::uint32_t>(to));
  if (!device.commands().run(in)) return false;
  send_state_ = to;
  if (to == sq_state::RST) device.records().remove_send_queue(sqn_);
  if (to == sq_state::RDY) {
    const SendDoorbell bell{.number = sqn_, .uar = queues_.uar, .record = queues_.record};
    device.records().add_send_queue(bell.number, bell.uar, bell.counter());
  }
  return true;
}

sq_state RawPacketQp::sender_state() const {
  Command<spec::query_sq_in> in(Op::QUERY_SQ);
  in.set(spec::query_sq_in::sqn, sqn_);
  const auto out = device.commands().execute<spec::query_sq_out>(in);
  if (!out) return sq_state::ERR;
  const auto state = out->get(spec::query_sq_out::sq_context).get(spec::sq_context::state);
  return static_cast<sq_state>(state);
}

/// A raw packet QP has no attributes but its state, which follows from those of its queues
/// (sqrq_state_to_qp_state of mlx5_ib). EINVAL: no state of a QP has such queues, since the device
/// has failed one of them.
Errno RawPacketQp::read(ib_uverbs_query_qp_resp& out) {
  out.port_num = kPort1;
  if (receiver_.number() == 0) return 0;
  auto& state = condition().state;
  const bool sends = sqn_ != 0;
  const auto sender = sends ? sender_state() : sq_state::RST;
  switch (receiver_.state()) {
    case rq_state::RST:
      if (sends && sender != sq_state::RST) return EINVAL;
      state = kQpReset;
      return 0;
    case rq_state::RDY:
      if (sender == sq_state::ERR) state = kQpSqe;
      return 0;
    default:
      if (sends && sender != sq_state::ERR) return EINVAL;
      state = kQpError;
      return 0;
  }
}

}  // namespace softhca::uverbs
