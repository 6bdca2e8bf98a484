// MODIFY_QP and QUERY_QP of the QPs of transports: their commands to the device.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>

#include "spec/connectx/caps.h"
#include "spec/connectx/qp_commands.h"
#include "spec/infiniband/constants.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/transport_qps.h"

namespace softhca::uverbs {

using spec::ads;
using spec::command_opcode;
using spec::hca_cap;
using spec::qpc;
using Bit = spec::qp_opt_param_bit;

namespace {

constexpr std::uint32_t kLogAckRequestFrequency = 0;
constexpr std::uint32_t kLogDatagramMax = 12;

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

std::uint32_t log_of(std::uint8_t count) {
  return count <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(std::uint32_t{count} - 1u));
}

/// By ib_qp_state, and by ib_mig_state.
constexpr spec::qp_state kStates[] = {
    spec::qp_state::RST, spec::qp_state::INIT, spec::qp_state::RTR, spec::qp_state::RTS,
    spec::qp_state::SQD, spec::qp_state::SQER, spec::qp_state::ERR};
constexpr spec::pm_state kMigrations[] = {spec::pm_state::MIGRATED, spec::pm_state::REARM,
                                          spec::pm_state::ARMED};

/// The index of a value of the device's in such a table; `other` if there is none.
template <class Value>
std::uint8_t verbs_value(std::span<const Value> values, std::uint32_t value, std::uint8_t other) {
  const auto at = std::ranges::find(values, static_cast<Value>(value));
  return at == values.end() ? other : static_cast<std::uint8_t>(at - values.begin());
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

/// Runs QP_2RST or QP_2ERR. False: the device refuses.
template <class In>
bool leave(QueuePair& qp, command_opcode opcode) {
  Command<In> in(opcode);
  in.set(In::qpn, qp.qpn);
  return qp.device.commands().run(in).has_value();
}

/// The work of mlx5_set_path.
void describe_path(const QueuePair& qp, const QpChange& change, util::MutableView<ads> path) {
  const auto& in = change.in;
  if (change.has(kQpPkey)) path.set(ads::pkey_index, in.pkey_index);
  if (change.has(kQpPort)) path.set(ads::vhca_port_num, in.port_num);
  if (change.has(kQpTimeout)) path.set(ads::ack_timeout, in.timeout & ads::ack_timeout.kMax);
  if (!change.has(kQpPath)) return;
  const auto& to = in.dest;
  const bool has_udp = qp.device.gid(to.sgid_index)->roce_v2;
  path.set(ads::vhca_port_num, kPort1);
  path.set(ads::src_addr_index, to.sgid_index);
  path.set(ads::hop_limit, qp.is_connected() ? change.route.hop_limit : to.hop_limit);
  path.set(ads::tclass, to.traffic_class);
  path.set(ads::flow_label, to.flow_label & ads::flow_label.kMax);
  path.set(ads::eth_prio, to.sl & ads::eth_prio.kMax);
  if (has_udp) path.set(ads::dscp, softhca::spec::infiniband::dscp_of(to.traffic_class));
  if (has_udp && qp.is_connected() && change.has(kQpDestQpn)) {
    path.set(ads::udp_sport, udp_source_port(to.flow_label, qp.qpn, in.dest_qp_num));
  }
  std::ranges::copy(std::as_bytes(std::span(to.dgid)), path.sub(ads::rgid_rip).begin());
  std::ranges::copy(change.route.mac.bytes, path.sub(ads::rmac).begin());
}

/// set_qpc_atomic_flags: a responder depth of 0 leaves only remote writes. The mode is that of
/// get_atomic_mode for a device with extended atomics of 8 bytes.
void describe_access(const QpCondition& known, const QpChange& change,
                     util::MutableView<qpc> context) {
  if (!change.has(kQpAccess | kQpMaxDestReads)) return;
  const auto& in = change.in;
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

}  // namespace

/// Whether all values are in range (mlx5_ib_modify_qp).
bool TransportQp::are_in_range(const QpChange& change) const {
  const auto& in = change.in;
  const auto pkeys = kPkeysMin << device.capabilities().get(hca_cap::pkey_table_size);
  if (change.has(kQpPkey) && in.pkey_index >= pkeys) return false;
  // mlx5_ib compares each with the limit of the other.
  if (change.has(kQpMaxReads) && in.max_rd_atomic > 1u << log_read_answers_) return false;
  if (change.has(kQpMaxDestReads) && in.max_dest_rd_atomic > 1u << log_reads_) return false;
  if (change.has(kQpMtu) && (in.path_mtu < 1 || in.path_mtu > kMtu4096)) return false;
  return !change.has(kQpPath) || is_rate(in.dest.static_rate);
}

/// __mlx5_ib_modify_qp: the attributes given, and the fields that go with every command.
void TransportQp::describe(const QpChange& change, Qpc context) {
  const auto& in = change.in;
  context.set(qpc::st, static_cast<std::uint32_t>(service_));
  const bool migrates = change.has(kQpMigration) && in.path_mig_state < std::size(kMigrations);
  context.set(qpc::pm_state,
              static_cast<std::uint32_t>(kMigrations[migrates ? in.path_mig_state : 0]));
  context.set(qpc::pd, pdn);
  context.set(qpc::cqn_snd, send_cqn);
  context.set(qpc::cqn_rcv, receive_cqn);
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  if (change.from == kQpReset) {
    context.set(qpc::dbr_addr, Device::bus_address(queues_.record));
    context.set(qpc::counter_set_id, device.counter_set());
  }
  if (change.has(kQpMtu)) {
    context.set(qpc::mtu, in.path_mtu);
    context.set(qpc::log_msg_max, device.capabilities().get(hca_cap::log_max_msg));
  }
  describe_path(*this, change, context.sub(qpc::primary_address_path));
  describe_access(condition(), change, context);
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

void DatagramQp::describe(const QpChange& change, Qpc context) {
  TransportQp::describe(change, context);
  context.set(qpc::mtu, kMtu4096);
  context.set(qpc::log_msg_max, kLogDatagramMax);
}

bool TransportQp::change_in_device(const QpChange& change) {
  if (change.to == kQpReset) {
    device.records().remove_send_queue(qpn);
    return leave<spec::qp_2rst_in>(*this, command_opcode::QP_2RST);
  }
  if (change.to == kQpError) return leave<spec::qp_2err_in>(*this, command_opcode::QP_2ERR);
  const auto* transition = find_qp_command(spec::kQpCommands, infiniband_state(change.from),
                                           infiniband_state(change.to));
  if (transition == nullptr) return false;
  // These commands' inputs have the same layout.
  Command<spec::rst2init_qp_in> in(transition->opcode);
  in.set(spec::rst2init_qp_in::qpn, qpn);
  if (change.from != kQpReset) {
    in.set(spec::rst2init_qp_in::opt_param_mask, optional_parts(change.in.attr_mask));
  }
  describe(change, in.sub(spec::rst2init_qp_in::qpc));
  return device.commands().run(in).has_value();
}

Errno TransportQp::move(const QpChange& change) {
  if (!are_in_range(change) || !change_in_device(change)) return EINVAL;
  const auto bell = doorbell();
  if (change.to == kQpRts && change.from != kQpRts && bell.record != 0) {
    device.records().add_send_queue(bell.number, bell.uar, bell.counter());
  }
  return 0;
}

/// The work of query_qp_attr.
Errno TransportQp::read(ib_uverbs_query_qp_resp& out) {
  Command<spec::query_qp_in> ask(command_opcode::QUERY_QP);
  ask.set(spec::query_qp_in::qpn, qpn);
  const auto answer = device.commands().execute<spec::query_qp_out>(ask);
  if (!answer) return EINVAL;
  const auto context = answer->get(spec::query_qp_out::qpc);
  const auto small = [&](auto field) { return static_cast<std::uint8_t>(context.get(field)); };
  condition().state = verbs_value<spec::qp_state>(kStates, context.get(qpc::state), kQpSqd);
  out.path_mtu = small(qpc::mtu);
  out.path_mig_state = verbs_value<spec::pm_state>(kMigrations, context.get(qpc::pm_state), 0);
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
  if (is_connected()) put_path(path, out.dest);
  out.pkey_index = static_cast<std::uint16_t>(path.get(ads::pkey_index));
  out.port_num = static_cast<std::uint8_t>(path.get(ads::vhca_port_num));
  out.timeout = static_cast<std::uint8_t>(path.get(ads::ack_timeout));
  return 0;
}

}  // namespace softhca::uverbs
