#include "uverbs/qp_states.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "spec/connectx/caps.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/qp_commands.h"
#include "spec/infiniband/constants.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/dynamic_targets.h"
#include "uverbs/qp_masks.h"
#include "uverbs/route.h"

namespace softhca::uverbs {

using spec::ads;
using spec::command_opcode;
using spec::hca_cap;
using spec::qpc;
using Bit = spec::qp_opt_param_bit;

namespace {

constexpr std::uint32_t kLogAckRequestFrequency = 0;
constexpr std::uint32_t kLogDatagramMax = 12;

/// The program's request, and what the checks found out about it.
struct Change {
  const QpAttributes& in;
  Route route;
  std::uint8_t from, to;
  bool has(std::uint32_t attribute) const { return (in.attr_mask & attribute) != 0; }
};

/// Whether the QP has one peer. Other services take the destination from each work request.
bool has_peer(const QueuePair& qp) {
  return qp.raw == nullptr && qp.service != spec::service_type::UD &&
         qp.service != spec::service_type::DCI && !qp.is_target();
}

/// Checks ports and states (modify_qp of uverbs_cmd.c). An address vector also sets the port,
/// except on the transition to RTR, where it must match the QP's port.
Errno check_command(QueuePair& qp, QpAttributes& in) {
  const auto has = [&](std::uint32_t attribute) { return (in.attr_mask & attribute) != 0; };
  if (has(kQpPort) && in.port_num != kPort1) return EINVAL;
  if (has(kQpPath)) {
    if (in.dest.port_num != kPort1) return EINVAL;
    if (has(kQpState) && in.qp_state == kQpRtr) {
      if (qp.condition().port != in.dest.port_num) return EINVAL;
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
Errno check_paths(const QueuePair& qp, const QpAttributes& in, Route& route) {
  const auto& device = qp.device;
  if ((in.attr_mask & kQpPath) != 0) {
    const auto to = address_vector(in.dest);
    if (const auto wrong = check_source(device, to); wrong != 0) return wrong;
    if (has_peer(qp)) {
      if (const auto wrong = find_route(device, to, route); wrong != 0) return wrong;
    }
  }
  if ((in.attr_mask & kQpAlternatePath) == 0) return 0;
  const auto wrong = check_source(device, address_vector(in.alt_dest));
  return wrong != 0 ? wrong : EINVAL;
}

/// Whether all values are in range (mlx5_ib_modify_qp).
bool are_in_range(const QueuePair& qp, const QpAttributes& in) {
  const auto caps = qp.device.capabilities();
  const auto has = [&](std::uint32_t attribute) { return (in.attr_mask & attribute) != 0; };
  const bool is_dci = qp.service == spec::service_type::DCI;
  const auto requests =
      1u << (is_dci ? caps.get(hca_cap::log_max_ra_req_dc) : caps.get(hca_cap::log_max_ra_req_qp));
  const auto answers =
      1u << (is_dci ? caps.get(hca_cap::log_max_ra_res_dc) : caps.get(hca_cap::log_max_ra_res_qp));
  if (has(kQpPkey) && in.pkey_index >= kPkeysMin << caps.get(hca_cap::pkey_table_size)) {
    return false;
  }
  // mlx5_ib compares each with the limit of the other.
  if (has(kQpMaxReads) && in.max_rd_atomic > answers) return false;
  if (has(kQpMaxDestReads) && in.max_dest_rd_atomic > requests) return false;
  const bool is_datagram = qp.type == IB_UVERBS_QPT_UD;
  if (has(kQpMtu) && !is_datagram && (in.path_mtu < 1 || in.path_mtu > kMtu4096)) return false;
  return !has(kQpPath) || is_rate(in.dest.static_rate);
}

constexpr std::uint32_t bits(auto... which) { return ((1u << static_cast<unsigned>(which)) | ...); }

/// Bits of opt_param_mask for each attribute given.
struct OptionalParts {
  std::uint32_t attribute;
  std::uint32_t bits;
};
constexpr OptionalParts kOptionalParts[] = {
    {kQpAccess, bits(Bit::RRE, Bit::RWE, Bit::RAE)},
    {kQpPkey, bits(Bit::PKEY_INDEX)},
    {kQpPort, bits(Bit::PRI_PORT)},
    {kQpQkey, bits(Bit::Q_KEY)},
    {kQpPath, bits(Bit::PRIMARY_ADDR_PATH)},
    {kQpTimeout, bits(Bit::ACK_TIMEOUT)},
    {kQpRetry, bits(Bit::RETRY_COUNT)},
    {kQpRnrRetry, bits(Bit::RNR_RETRY)},
    {kQpMaxReads, bits(Bit::SRA_MAX)},
    {kQpMinRnr, bits(Bit::RNR_TIMEOUT)},
    {kQpMaxDestReads, bits(Bit::RRA_MAX, Bit::RRE, Bit::RWE, Bit::RAE)},
    {kQpMigration, bits(Bit::PM_STATE)},
};

std::uint32_t optional_parts(std::uint32_t given) {
  std::uint32_t mask = 0;
  for (const auto& row : kOptionalParts) {
    if ((given & row.attribute) != 0) mask |= row.bits;
  }
  return mask;
}

/// The work of mlx5_set_path.
void describe_path(QueuePair& qp, const Change& change, util::MutableView<ads> path) {
  const auto& in = change.in;
  if (change.has(kQpPkey)) path.set(ads::pkey_index, in.pkey_index);
  if (change.has(kQpPort)) path.set(ads::vhca_port_num, in.port_num);
  if (change.has(kQpTimeout)) path.set(ads::ack_timeout, in.timeout & ads::ack_timeout.kMax);
  if (!change.has(kQpPath)) return;
  const auto& to = in.dest;
  const bool has_udp = qp.device.gid(to.sgid_index)->roce_v2;
  path.set(ads::vhca_port_num, kPort1);
  path.set(ads::src_addr_index, to.sgid_index);
  path.set(ads::hop_limit, has_peer(qp) ? change.route.hop_limit : to.hop_limit);
  path.set(ads::tclass, to.traffic_class);
  path.set(ads::flow_label, to.flow_label & ads::flow_label.kMax);
  path.set(ads::eth_prio, to.sl & ads::eth_prio.kMax);
  if (has_udp) path.set(ads::dscp, softhca::spec::infiniband::dscp_of(to.traffic_class));
  if (has_udp && has_peer(qp) && change.has(kQpDestQpn)) {
    path.set(ads::udp_sport, udp_source_port(to.flow_label, qp.qpn, in.dest_qp_num));
  }
  std::ranges::copy(std::as_bytes(std::span(to.dgid)), path.sub(ads::rgid_rip).begin());
  std::ranges::copy(change.route.mac.bytes, path.sub(ads::rmac).begin());
}

/// set_qpc_atomic_flags: a responder depth of 0 leaves only remote writes. The mode is that of
/// get_atomic_mode for a device with extended atomics of 8 bytes.
void describe_access(QueuePair& qp, const Change& change, util::MutableView<qpc> context) {
  if (!change.has(kQpAccess | kQpMaxDestReads)) return;
  const auto& in = change.in;
  const auto& known = qp.condition();
  const auto depth = change.has(kQpMaxDestReads) ? in.max_dest_rd_atomic : known.responder_depth;
  auto access = change.has(kQpAccess) ? in.qp_access_flags : known.access;
  if (depth == 0) access &= kQpRemoteWrite;
  context.set(qpc::rre, (access & kQpRemoteRead) != 0);
  context.set(qpc::rwe, (access & kQpRemoteWrite) != 0);
  context.set(qpc::rae, (access & kQpRemoteAtomic) != 0);
  if ((access & kQpRemoteAtomic) != 0) {
    context.set(qpc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::UP_TO_8B));
  }
}

std::uint32_t log_of(std::uint8_t count) {
  return count <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(std::uint32_t{count} - 1u));
}

spec::pm_state migration_of(const Change& change) {
  enum : std::uint8_t { kMigrated, kRearm, kArmed };  // ib_mig_state
  if (!change.has(kQpMigration)) return spec::pm_state::MIGRATED;
  switch (change.in.path_mig_state) {
    case kRearm:
      return spec::pm_state::REARM;
    case kArmed:
      return spec::pm_state::ARMED;
    default:
      return spec::pm_state::MIGRATED;
  }
}

/// __mlx5_ib_modify_qp: the attributes given, and the fields that go with every command.
void describe(QueuePair& qp, const Change& change, util::MutableView<qpc> context) {
  const auto& in = change.in;
  context.set(qpc::st, static_cast<std::uint32_t>(qp.service));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(migration_of(change)));
  context.set(qpc::pd, qp.pdn);
  context.set(qpc::cqn_snd, qp.send_cqn);
  context.set(qpc::cqn_rcv, qp.receive_cqn);
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  if (change.from == kQpReset) {
    context.set(qpc::dbr_addr, Device::bus_address(qp.queues.record));
    context.set(qpc::counter_set_id, qp.device.counter_set());
  }
  if (qp.type == IB_UVERBS_QPT_UD) {
    context.set(qpc::mtu, kMtu4096);
    context.set(qpc::log_msg_max, kLogDatagramMax);
  } else if (change.has(kQpMtu)) {
    context.set(qpc::mtu, in.path_mtu);
    context.set(qpc::log_msg_max, qp.device.capabilities().get(hca_cap::log_max_msg));
  }
  describe_path(qp, change, context.sub(qpc::primary_address_path));
  describe_access(qp, change, context);
  if (change.has(kQpDestQpn)) context.set(qpc::remote_qpn, in.dest_qp_num & qpc::remote_qpn.kMax);
  if (change.has(kQpRqPsn)) context.set(qpc::next_rcv_psn, in.rq_psn & qpc::next_rcv_psn.kMax);
  if (change.has(kQpSqPsn)) context.set(qpc::next_send_psn, in.sq_psn & qpc::next_send_psn.kMax);
  if (change.has(kQpQkey)) context.set(qpc::q_key, in.qkey);
  if (change.has(kQpMinRnr))
    context.set(qpc::min_rnr_nak, in.min_rnr_timer & qpc::min_rnr_nak.kMax);
  if (change.has(kQpRetry)) context.set(qpc::retry_count, in.retry_cnt & qpc::retry_count.kMax);
  if (change.has(kQpRnrRetry)) context.set(qpc::rnr_retry, in.rnr_retry & qpc::rnr_retry.kMax);
  if (change.has(kQpMaxReads)) context.set(qpc::log_sra_max, log_of(in.max_rd_atomic));
  if (change.has(kQpMaxDestReads)) context.set(qpc::log_rra_max, log_of(in.max_dest_rd_atomic));
}

/// Runs QP_2RST or QP_2ERR. False: the device refuses.
template <class In>
bool leave(QueuePair& qp, command_opcode opcode) {
  Command<In> in(opcode);
  in.set(In::qpn, qp.qpn);
  return qp.device.commands().run(in).has_value();
}

bool change_in_device(QueuePair& qp, const Change& change) {
  if (change.to == kQpReset) {
    qp.device.records().remove_send_queue(qp.qpn);
    return leave<spec::qp_2rst_in>(qp, command_opcode::QP_2RST);
  }
  if (change.to == kQpError) return leave<spec::qp_2err_in>(qp, command_opcode::QP_2ERR);
  const auto* transition = find_qp_command(spec::kQpCommands, infiniband_state(change.from),
                                           infiniband_state(change.to));
  if (transition == nullptr) return false;
  // These commands' inputs have the same layout.
  Command<spec::rst2init_qp_in> in(transition->opcode);
  in.set(spec::rst2init_qp_in::qpn, qp.qpn);
  if (change.from != kQpReset) {
    in.set(spec::rst2init_qp_in::opt_param_mask, optional_parts(change.in.attr_mask));
  }
  describe(qp, change, in.sub(spec::rst2init_qp_in::qpc));
  return qp.device.commands().run(in).has_value();
}

void remember(QueuePair& qp, const Change& change) {
  auto& known = qp.condition();
  known.state = change.to;
  if (change.has(kQpAccess)) known.access = change.in.qp_access_flags;
  if (change.has(kQpMaxDestReads)) known.responder_depth = change.in.max_dest_rd_atomic;
  if (change.has(kQpPort)) known.port = change.in.port_num;
  if (change.has(kQpPath)) known.source = GidUse(qp.device, change.in.dest.sgid_index);
}

}  // namespace

Errno change_qp(QueuePair& qp, QpAttributes in, std::uint32_t rate) {
  if (const auto wrong = check_command(qp, in); wrong != 0) return wrong;
  in.attr_mask = relevant_mask(qp, in.attr_mask);
  Change change{.in = in, .route = {}, .from = qp.condition().state, .to = 0};
  if (const auto wrong = check_paths(qp, in, change.route); wrong != 0) return wrong;
  if (qp.scaling_tirn != 0) return ENOSYS;
  if (qp.is_target()) return change_target(qp, in);
  if (change.has(kQpCurrentState)) change.from = in.cur_qp_state;
  change.to = change.has(kQpState) ? in.qp_state : change.from;
  if (!takes_mask(qp, change.from, change.to, in.attr_mask)) return EINVAL;
  if (!are_in_range(qp, in)) return EINVAL;
  if (change.from == kQpReset && change.to == kQpReset) return 0;
  if (qp.raw != nullptr) {
    // A ConnectX-4 has no rate limits per send queue.
    if (change.has(kQpRateLimit) && rate != 0) return EOPNOTSUPP;
    if (!qp.raw->change(change.from, change.to)) return EINVAL;
  } else if (!change_in_device(qp, change)) {
    return EINVAL;
  }
  remember(qp, change);
  if (qp.raw == nullptr && change.to == kQpRts && change.from != kQpRts && qp.queues.has_sender) {
    qp.device.records().add_send_queue(
        qp.qpn, qp.queues.uar, reinterpret_cast<const std::uint32_t*>(qp.queues.record + 4));
  }
  return 0;
}

}  // namespace softhca::uverbs
