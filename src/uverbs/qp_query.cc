#include "uverbs/qp_query.h"

#include <cerrno>
#include <cstring>

#include "spec/connectx/dct.h"
#include "spec/connectx/qp.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using spec::ads;
using spec::command_opcode;
using spec::dctc;
using spec::qpc;

namespace {

std::uint8_t state_of(spec::qp_state state) {
  switch (state) {
    case spec::qp_state::RST:
      return kQpReset;
    case spec::qp_state::INIT:
      return kQpInit;
    case spec::qp_state::RTR:
      return kQpRtr;
    case spec::qp_state::RTS:
      return kQpRts;
    case spec::qp_state::SQER:
      return kQpSqe;
    case spec::qp_state::ERR:
      return kQpError;
    default:
      return kQpSqd;
  }
}

std::uint8_t migration_of(spec::pm_state state) {
  enum : std::uint8_t { kMigrated, kRearm, kArmed };  // ib_mig_state
  switch (state) {
    case spec::pm_state::ARMED:
      return kArmed;
    case spec::pm_state::REARM:
      return kRearm;
    default:
      return kMigrated;
  }
}

template <class Layout>
std::uint8_t access_of(const util::View<Layout>& context) {
  const auto flag = [&](auto field, unsigned bit) { return context.get(field) != 0 ? bit : 0u; };
  return static_cast<std::uint8_t>(flag(Layout::rwe, kQpRemoteWrite) |
                                   flag(Layout::rre, kQpRemoteRead) |
                                   flag(Layout::rae, kQpRemoteAtomic));
}

/// A path without a port is not set.
void put_path(const util::View<ads>& path, ib_uverbs_qp_dest& out) {
  if (path.get(ads::vhca_port_num) == 0) return;
  out.is_global = 1;
  out.port_num = static_cast<std::uint8_t>(path.get(ads::vhca_port_num));
  out.sl = static_cast<std::uint8_t>(path.get(ads::sl));
  out.sgid_index = static_cast<std::uint8_t>(path.get(ads::src_addr_index));
  out.hop_limit = static_cast<std::uint8_t>(path.get(ads::hop_limit));
  out.traffic_class = static_cast<std::uint8_t>(path.get(ads::tclass));
  out.flow_label = static_cast<std::uint32_t>(path.get(ads::flow_label));
  std::memcpy(out.dgid, path.get(ads::rgid_rip).data(), sizeof out.dgid);
}

/// The work of query_qp_attr.
Errno query_in_device(QueuePair& qp, ib_uverbs_query_qp_resp& out) {
  Command<spec::query_qp_in> ask(command_opcode::QUERY_QP);
  ask.set(spec::query_qp_in::qpn, qp.qpn);
  const auto answer = qp.device.commands().execute<spec::query_qp_out>(ask);
  if (!answer) return EINVAL;
  const auto context = answer->get(spec::query_qp_out::qpc);
  const auto small = [&](auto field) { return static_cast<std::uint8_t>(context.get(field)); };
  qp.condition().state = state_of(static_cast<spec::qp_state>(context.get(qpc::state)));
  out.path_mtu = small(qpc::mtu);
  out.path_mig_state = migration_of(static_cast<spec::pm_state>(context.get(qpc::pm_state)));
  out.qkey = context.get(qpc::q_key);
  out.rq_psn = context.get(qpc::next_rcv_psn);
  out.sq_psn = context.get(qpc::next_send_psn);
  out.dest_qp_num = context.get(qpc::remote_qpn);
  out.qp_access_flags = access_of(context);
  out.max_rd_atomic = static_cast<std::uint8_t>(1u << context.get(qpc::log_sra_max));
  out.max_dest_rd_atomic = static_cast<std::uint8_t>(1u << context.get(qpc::log_rra_max));
  out.min_rnr_timer = small(qpc::min_rnr_nak);
  out.retry_cnt = small(qpc::retry_count);
  out.rnr_retry = small(qpc::rnr_retry);
  const auto path = context.get(qpc::primary_address_path);
  const bool is_connected = qp.type == IB_UVERBS_QPT_RC || qp.type == IB_UVERBS_QPT_UC ||
                            qp.type == IB_UVERBS_QPT_XRC_INI || qp.type == IB_UVERBS_QPT_XRC_TGT;
  if (is_connected) put_path(path, out.dest);
  out.pkey_index = static_cast<std::uint16_t>(path.get(ads::pkey_index));
  out.port_num = static_cast<std::uint8_t>(path.get(ads::vhca_port_num));
  out.timeout = static_cast<std::uint8_t>(path.get(ads::ack_timeout));
  return 0;
}

/// mlx5_ib_dct_query_qp: the attributes asked for, of a DCT that is in the device.
Errno query_target(QueuePair& target, std::uint32_t mask, ib_uverbs_query_qp_resp& out) {
  constexpr std::uint32_t kKnown =
      kQpState | kQpAccess | kQpPort | kQpMinRnr | kQpPath | kQpMtu | kQpPkey;
  if ((mask & ~kKnown) != 0 || target.condition().state != kQpRtr) return EINVAL;
  Command<spec::query_dct_in> ask(command_opcode::QUERY_DCT);
  ask.set(spec::query_dct_in::dctn, target.qpn);
  const auto answer = target.device.commands().execute<spec::query_dct_out>(ask);
  if (!answer) return EINVAL;
  const auto context = answer->get(spec::query_dct_out::dct_context_entry);
  const auto has = [&](std::uint32_t attribute) { return (mask & attribute) != 0; };
  const auto small = [&](auto field) { return static_cast<std::uint8_t>(context.get(field)); };
  if (has(kQpState)) out.qp_state = kQpRtr;
  if (has(kQpAccess)) out.qp_access_flags = access_of(context);
  if (has(kQpPort)) out.port_num = target.condition().port;
  if (has(kQpMinRnr)) out.min_rnr_timer = small(dctc::min_rnr_nak);
  if (has(kQpMtu)) out.path_mtu = small(dctc::mtu);
  if (has(kQpPkey)) out.pkey_index = static_cast<std::uint16_t>(context.get(dctc::pkey_index));
  // A DCT's address vector has no global flag, so mlx5_ib reports no path fields.
  return 0;
}

/// A raw packet QP has no attributes but its state, which follows from those of its queues
/// (sqrq_state_to_qp_state of mlx5_ib). EINVAL: no state of a QP has such queues, since the device
/// has failed one of them.
Errno query_raw_packet_qp(QueuePair& qp, ib_uverbs_query_qp_resp& out) {
  using spec::rq_state;
  using spec::sq_state;
  out.port_num = kPort1;
  if (qp.raw->rqn() == 0) return 0;
  auto& state = qp.condition().state;
  const bool sends = qp.raw->sqn() != 0;
  const auto sender = sends ? qp.raw->sender_state() : sq_state::RST;
  switch (qp.raw->receiver_state()) {
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

}  // namespace

Errno query_qp(QueuePair& qp, std::uint32_t mask, ib_uverbs_query_qp_resp& out) {
  if (qp.scaling_tirn != 0) return ENOSYS;
  if (qp.is_target()) return query_target(qp, mask, out);
  const auto wrong = qp.raw != nullptr ? query_raw_packet_qp(qp, out) : query_in_device(qp, out);
  if (wrong != 0) return wrong;
  out.qp_state = out.cur_qp_state = qp.condition().state;
  // libmlx5 knows the send queue's size itself.
  out.max_recv_wr = qp.queues.receive_entries;
  out.max_recv_sge = qp.queues.receive_sges;
  out.sq_sig_all = qp.signals_all;
  return 0;
}

}  // namespace softhca::uverbs
