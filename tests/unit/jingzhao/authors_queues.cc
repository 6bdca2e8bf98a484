// Queue pairs of the author's driver, and its lists of WQEs.
#include <algorithm>

#include "jingzhao/authors_driver.h"

namespace softhca::jingzhao::test {

namespace {

constexpr std::uint32_t kUnit = next_unit::kSize;
/// Most pieces of a receive.
constexpr std::size_t kPiecesMax = 4;
/// A page of doorbells: the kernel's is 0, the program's 1.
constexpr std::uint64_t kDoorbell = 0x1000;

}  // namespace

// Queue pairs ------------------------------------------------------------------------------------

std::unique_ptr<AuthorsDriver::Qp> AuthorsDriver::create_qp(Cq& send_cq, Cq& receive_cq,
                                                            std::uint32_t slots, qp_type type) {
  auto qp = std::make_unique<Qp>();
  qp->type = type;
  qp->send_cq = &send_cq;
  qp->receive_cq = &receive_cq;
  for (auto* queue : {&qp->sends, &qp->receives}) {
    queue->memory = make_queue(slots * kSlot);
    queue->slots = slots;
    queue->ids.resize(slots);
  }
  reset_indices(*qp);
  qp->qpn = qpns_.take();
  use(qpc_, qpns_.index(qp->qpn));
  qps_[qpns_.index(qp->qpn)] = qp.get();
  return qp;
}

void AuthorsDriver::reset_indices(Qp& qp) {
  for (auto* queue : {&qp.sends, &qp.receives}) {
    queue->head = queue->tail = 0;
    queue->last_done = queue->slots - 1;
    queue->last = queue->slot(queue->slots - 1).data();
  }
}

namespace {

command_opcode opcode_of(spec::jingzhao::qp_state from, spec::jingzhao::qp_state to) {
  using enum spec::jingzhao::qp_state;
  using enum command_opcode;
  if (to == RST) return ERR2RST_QPEE;
  if (to == ERR) return TO_ERR_QPEE;
  switch (from) {
    case RST:
      return RST2INIT_QPEE;
    case INIT:
      return to == INIT ? INIT2INIT_QPEE : INIT2RTR_QPEE;
    case RTR:
      return RTR2RTS_QPEE;
    case RTS:
      return to == RTS ? RTS2RTS_QPEE : RTS2SQD_QPEE;
    case SQD:
      return to == RTS ? SQD2RTS_QPEE : SQD2SQD_QPEE;
    case SQE:
      return SQERR2RTS_QPEE;
    default:
      return NOP;
  }
}

}  // namespace

/// All that is known of the QP. The path is empty.
void AuthorsDriver::fill_context(const Qp& qp, qp_state to) {
  util::Struct<qp_context> context;
  context.set(qp_context::state, static_cast<std::uint32_t>(to));
  context.set(qp_context::type, static_cast<std::uint32_t>(qp.type));
  context.set(qp_context::mtu, qp.mtu);
  context.set(qp_context::msgmax, qp.msgmax);
  context.set(qp_context::rq_entry_sz_log, kLogSlot);
  context.set(qp_context::sq_entry_sz_log, kLogSlot);
  context.set(qp_context::usr_page, kDoorbell / Icm::kPage);
  context.set(qp_context::local_qpn, qpns_.index(qp.qpn));
  context.set(qp_context::remote_qpn, qpns_.index(qp.remote_qpn));
  context.set(qp_context::port, 1);
  context.set(qp_context::pd, kPd);
  context.set(qp_context::wqe_lkey, qp.sends.memory.key);
  context.set(qp_context::next_send_psn, qp.psn);
  context.set(qp_context::last_acked_psn, qp.psn);
  context.set(qp_context::cqn_snd, qp.send_cq->cqn);
  context.set(qp_context::snd_wqe_base_l, qp.sends.memory.key);
  context.set(qp_context::snd_wqe_len, qp.sends.slots * kSlot);
  context.set(qp_context::rnr_timer, qp.rnr_timer);
  context.set(qp_context::epsn, qp.epsn);
  context.set(qp_context::cqn_rcv, qp.receive_cq->cqn);
  context.set(qp_context::rcv_wqe_base_l, qp.receives.memory.key);
  context.set(qp_context::rcv_wqe_len, qp.receives.slots * kSlot);
  if (card_.sets_qkey) context.set(qp_context::qkey, qp.qkey);
  h.put(context.bytes());
}

hcr_status AuthorsDriver::modify(Qp& qp, qp_state to, const Change& change) {
  constexpr std::uint32_t kMtu4096 = 5, kMsgMaxUd = 11, kMsgMax = 31;
  if (qp.type == qp_type::UD) {
    qp.mtu = kMtu4096;
    qp.msgmax = kMsgMaxUd;
  } else if (change.mtu) {
    qp.mtu = *change.mtu;
    qp.msgmax = kMsgMax;
  }
  qp.remote_qpn = change.remote_qpn.value_or(qp.remote_qpn);
  qp.psn = change.psn.value_or(qp.psn);
  qp.epsn = change.epsn.value_or(qp.epsn);
  qp.rnr_timer = change.rnr_timer.value_or(qp.rnr_timer);
  fill_context(qp, to);
  h.put32(0, std::uint32_t{change.port} << card_.port_bit |
                 std::uint32_t{change.rnr_timer.has_value()} << card_.rnr_timer_bit);
  const auto status = command(opcode_of(qp.state, to), qp.qpn);
  if (status != OK) return status;
  qp.state = to;
  if (to == qp_state::RST) {
    clean(*qp.receive_cq, qp.qpn);
    if (qp.send_cq != qp.receive_cq) clean(*qp.send_cq, qp.qpn);
    reset_indices(qp);
  }
  return OK;
}

void AuthorsDriver::connect(Qp& qp, const Qp& peer) {
  constexpr std::uint32_t kPsn = 0x654321, kMtu1024 = 3, kRnrTimer = 12;
  ASSERT_EQ(modify(qp, qp_state::INIT, {.port = true}), OK);
  ASSERT_EQ(modify(qp, qp_state::RTR,
                   {.remote_qpn = peer.qpn, .epsn = kPsn, .mtu = kMtu1024, .rnr_timer = kRnrTimer}),
            OK);
  ASSERT_EQ(modify(qp, qp_state::RTS, {.psn = kPsn}), OK);
}

void AuthorsDriver::destroy(Qp& qp) {
  qps_.erase(qpns_.index(qp.qpn));
  if (qp.state != qp_state::RST) {
    h.clear_mailbox();
    EXPECT_EQ(command(command_opcode::ERR2RST_QPEE, qp.qpn), OK);
  }
  clean(*qp.receive_cq, qp.qpn);
  if (qp.send_cq != qp.receive_cq) clean(*qp.send_cq, qp.qpn);
  release(qpc_, qpns_.index(qp.qpn));
  qpns_.free(qp.qpn);
  deregister(qp.sends.memory);
  deregister(qp.receives.memory);
}

qp_state AuthorsDriver::query(const Qp& qp) {
  EXPECT_EQ(command_with(command_opcode::QUERY_QP, qp.qpn, 0, 0), OK);
  return static_cast<qp_state>(h.get32(8) >> 28);
}

// Posting ----------------------------------------------------------------------------------------

namespace {

void put_piece(std::span<std::byte> at, const AuthorsDriver::Piece& piece) {
  const util::MutableView<data_unit> unit(at);
  unit.set(data_unit::is_inline, 0);
  unit.set(data_unit::byte_cnt, piece.length);
  unit.set(data_unit::lkey, piece.lkey);
  unit.set(data_unit::addr, piece.at);
}

bool has_raddr(spec::jingzhao::wqe_opcode opcode) {
  using enum spec::jingzhao::wqe_opcode;
  return opcode == RDMA_WRITE || opcode == RDMA_WRITE_IMM || opcode == RDMA_READ;
}

}  // namespace

/// Returns its size in units. The link of the slot's previous WQE stays.
std::uint32_t AuthorsDriver::put_wqe(const Qp& qp, std::span<std::byte> wqe, const Wr& wr) {
  std::uint32_t units = 1;
  const util::MutableView<next_unit> next(wqe.first(kUnit));
  next.set(next_unit::posted, 0);
  next.set(next_unit::c, 1);
  if (wr.opcode == wqe_opcode::SEND_IMM || wr.opcode == wqe_opcode::RDMA_WRITE_IMM) {
    next.set(next_unit::imm_data, wr.immediate);
  }
  if (qp.type == qp_type::UD) {
    const util::MutableView<ud_unit> unit(wqe.subspan(kUnit));
    unit.set(ud_unit::port, 1u << 24 | kPd);
    unit.set(ud_unit::dlid_dmac, 0);
    unit.set(ud_unit::slid_smac, 0);
    unit.set(ud_unit::dqpn, wr.remote_qpn);
    unit.set(ud_unit::qkey, wr.remote_qkey);
    units += ud_unit::kSize / kUnit;
  } else if (has_raddr(wr.opcode)) {
    const util::MutableView<raddr_unit> unit(wqe.subspan(kUnit));
    unit.set(raddr_unit::raddr, wr.to);
    unit.set(raddr_unit::rkey, wr.rkey);
    ++units;
  }
  if (!wr.is_inline) {
    for (const auto& piece : wr.pieces) put_piece(wqe.subspan(units++ * kUnit), piece);
    return units;
  }
  std::uint32_t length = 0;
  const auto payload = wqe.subspan(units * kUnit);
  for (const auto& piece : wr.pieces) {
    const auto* const from = reinterpret_cast<const std::byte*>(piece.at);
    std::ranges::copy(std::span(from, piece.length),
                      payload.subspan(inline_unit::data_offset + length).begin());
    length += piece.length;
  }
  const util::MutableView<inline_unit> unit(payload);
  unit.set(inline_unit::is_inline, 1);
  unit.set(inline_unit::length, length);
  return units +
         (static_cast<std::uint32_t>(inline_unit::data_offset) + length + kUnit - 1) / kUnit;
}

void AuthorsDriver::ring(Qp& qp, const Wr& first, std::uint32_t units, std::uint32_t count) {
  const auto low = qp.sends.head << (kLogSlot - 4) << 8 | std::uint32_t{first.fence} << 5 |
                   static_cast<std::uint32_t>(first.opcode);
  h.write64(kDoorbell, std::uint64_t{qp.qpn << 8 | units} << 32 | low, 2);
  qp.sends.head += count;
}

std::size_t AuthorsDriver::post_send(Qp& qp, std::span<const Wr> list) {
  auto& queue = qp.sends;
  std::uint32_t listed = 0, first_units = 0;
  for (std::size_t i = 0; i != list.size(); ++i) {
    if (listed == kListMax) {
      ring(qp, list[i - listed], first_units, listed);
      listed = 0;
    }
    if (!queue.has_room(listed)) {
      if (listed != 0) ring(qp, list[i - listed], first_units, listed);
      return i;
    }
    const auto& wr = list[i];
    const auto slot = (queue.head + listed) % queue.slots;
    const auto wqe = queue.slot(slot);
    const auto units = put_wqe(qp, wqe, wr);
    auto* const before = std::exchange(queue.last, wqe.data());
    queue.ids[slot] = wr.id;
    if (listed++ == 0) {
      first_units = units;
      continue;
    }
    const util::MutableView<next_unit> link({before, kUnit});
    link.set(next_unit::nop, static_cast<std::uint32_t>(wr.opcode));
    link.set(next_unit::nda, slot * kSlot / kUnit);
    link.set(next_unit::d, 1);
    link.set(next_unit::f, wr.fence);
    link.set(next_unit::nds, units);
  }
  if (listed != 0) ring(qp, list[list.size() - listed], first_units, listed);
  return list.size();
}

/// There is no doorbell. Bit 5 of the first dword says that the slot is posted, and a unit of zeros
/// ends the pieces.
std::size_t AuthorsDriver::post_receive(Qp& qp, std::span<const Wr> list) {
  constexpr std::uint32_t kValid = 1 << 5;
  auto& queue = qp.receives;
  std::byte* before = nullptr;
  for (std::size_t i = 0; i != list.size(); ++i) {
    if (!queue.has_room(0)) return i;
    const auto slot = queue.head % queue.slots;
    const auto wqe = queue.slot(slot);
    const auto& pieces = list[i].pieces;
    if (before != nullptr) {
      util::store_le32(before, slot * kSlot / kUnit << 6 | kValid);
      util::store_le32(before + 4, static_cast<std::uint32_t>(pieces.size()) + 1);
    }
    before = wqe.data();
    util::store_le32(wqe.data(), kValid);
    std::ranges::fill(wqe.subspan(4, 8), std::byte{0});
    std::uint32_t units = 1;
    for (const auto& piece : pieces) put_piece(wqe.subspan(units++ * kUnit), piece);
    if (pieces.size() < kPiecesMax) put_piece(wqe.subspan(units * kUnit), {});
    queue.ids[slot] = list[i].id;
    ++queue.head;
  }
  return list.size();
}

}  // namespace softhca::jingzhao::test
