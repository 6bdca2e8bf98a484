// MODIFY_QP and QUERY_QP (host-door contract 4.8): the two states choose the command, and what the
// program gives becomes its context. Which attributes a transition needs, the device checks.
#include <bit>
#include <cerrno>
#include <cstring>

#include "spec/connectx/caps.h"
#include "spec/connectx/qp.h"
#include "uverbs/context.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using spec::ads;
using spec::command_opcode;
using spec::qpc;
using Bit = spec::qp_opt_param_bit;

namespace {

/// ib_qp_attr_mask.
enum Mask : std::uint32_t {
  kState = 1,
  kCurrentState = 2,
  kAccess = 8,
  kPkey = 0x10,
  kPort = 0x20,
  kQkey = 0x40,
  kPath = 0x80,
  kMtu = 0x100,
  kTimeout = 0x200,
  kRetry = 0x400,
  kRnrRetry = 0x800,
  kRqPsn = 0x1000,
  kMaxReads = 0x2000,
  kMinRnr = 0x8000,
  kSqPsn = 0x10000,
  kMaxDestReads = 0x20000,
  kDestQpn = 0x100000,
};
/// ib_qp_state.
enum State : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kError };
/// ib_access_flags.
enum Access : std::uint32_t { kRemoteWrite = 2, kRemoteRead = 4, kRemoteAtomic = 8 };

constexpr std::uint8_t kPort1 = 1;
constexpr std::uint32_t kLogAckRequestFrequency = 0;

/// What is taken of the old attributes and the new.
void merge(QpAttributes& to, const QpAttributes& from) {
  const auto take = [&](std::uint32_t mask, auto member) {
    if ((from.attr_mask & mask) != 0) to.*member = from.*member;
  };
  using Q = QpAttributes;
  take(kAccess, &Q::qp_access_flags);
  take(kPkey, &Q::pkey_index);
  take(kPort, &Q::port_num);
  take(kQkey, &Q::qkey);
  take(kPath, &Q::dest);
  take(kMtu, &Q::path_mtu);
  take(kTimeout, &Q::timeout);
  take(kRetry, &Q::retry_cnt);
  take(kRnrRetry, &Q::rnr_retry);
  take(kRqPsn, &Q::rq_psn);
  take(kMaxReads, &Q::max_rd_atomic);
  take(kMinRnr, &Q::min_rnr_timer);
  take(kSqPsn, &Q::sq_psn);
  take(kMaxDestReads, &Q::max_dest_rd_atomic);
  take(kDestQpn, &Q::dest_qp_num);
  to.attr_mask |= from.attr_mask;
}

/// Reads and atomics that are under way at a time.
bool are_possible(std::uint8_t count, std::uint32_t log_max) { return count <= 1u << log_max; }

std::uint32_t log_of(std::uint8_t count) {
  return count <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(std::uint32_t{count} - 1u));
}

Errno describe_path(util::MutableView<ads> path, const Device& device, const QpAttributes& in,
                    bool has_peer) {
  const auto& to = in.dest;
  if (to.is_global == 0 || device.gid(to.sgid_index) == nullptr) return EINVAL;
  driver::Gid gid;
  std::memcpy(gid.bytes.data(), to.dgid, gid.bytes.size());
  driver::Mac mac;
  if (has_peer && !device.resolve_mac(gid, mac)) return ENETUNREACH;
  path.set(ads::src_addr_index, to.sgid_index);
  path.set(ads::hop_limit, to.hop_limit);
  path.set(ads::tclass, to.traffic_class);
  path.set(ads::flow_label, to.flow_label & 0xfffff);
  path.set(ads::vhca_port_num, kPort1);
  path.set(ads::udp_sport, 0xC000u | (in.dest_qp_num & 0x3fff));
  std::ranges::copy(gid.bytes, path.sub(ads::rgid_rip).begin());
  std::ranges::copy(mac.bytes, path.sub(ads::rmac).begin());
  return 0;
}

/// Others find theirs in the address of each work request.
bool has_peer(const QueuePair& qp) {
  return qp.service != spec::service_type::UD && qp.service != spec::service_type::DCI;
}

struct Transition {
  std::uint8_t from;
  std::uint8_t to;
  command_opcode command;
};
constexpr Transition kTransitions[] = {
    {kReset, kInit, command_opcode::RST2INIT_QP}, {kInit, kInit, command_opcode::INIT2INIT_QP},
    {kInit, kRtr, command_opcode::INIT2RTR_QP},   {kRtr, kRts, command_opcode::RTR2RTS_QP},
    {kRts, kRts, command_opcode::RTS2RTS_QP},     {kSqe, kRts, command_opcode::SQERR2RTS_QP},
};

/// All that the program has given, now or before; `mask`: bits of opt_param_mask for what is new.
Errno describe(QueuePair& qp, const QpAttributes& all, std::uint32_t given,
               util::MutableView<qpc> context, std::uint32_t& mask) {
  auto& device = qp.device;
  const auto note = [&](std::uint32_t attribute, Bit bit) {
    if ((given & attribute) != 0) mask |= 1u << static_cast<unsigned>(bit);
  };
  context.set(qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
  context.set(qpc::pd, qp.pdn);
  context.set(qpc::counter_set_id, device.counter_set());
  context.set(qpc::cqn_snd, qp.send_cqn);
  context.set(qpc::cqn_rcv, qp.receive_cqn);
  context.set(qpc::dbr_addr, Device::bus_address(qp.record));
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  const auto path = context.sub(qpc::primary_address_path);
  path.set(ads::vhca_port_num, kPort1);
  if ((given & kPath) != 0) {
    if (const auto wrong = describe_path(path, device, all, has_peer(qp)); wrong != 0) return wrong;
    note(kPath, Bit::PRIMARY_ADDR_PATH);
  }
  path.set(ads::ack_timeout, all.timeout & 0x1fu);
  note(kTimeout, Bit::ACK_TIMEOUT);
  const bool datagram = qp.type == IB_UVERBS_QPT_UD;
  const auto mtu = datagram ? std::uint32_t{5} : std::uint32_t{all.path_mtu};
  context.set(qpc::mtu, mtu & 7);
  context.set(qpc::log_msg_max,
              datagram ? 12 : device.capabilities().get(spec::hca_cap::log_max_msg));
  context.set(qpc::remote_qpn, all.dest_qp_num & 0xffffff);
  context.set(qpc::next_rcv_psn, all.rq_psn & 0xffffff);
  context.set(qpc::next_send_psn, all.sq_psn & 0xffffff);
  context.set(qpc::q_key, all.qkey);
  note(kQkey, Bit::Q_KEY);
  context.set(qpc::min_rnr_nak, all.min_rnr_timer & 0x1fu);
  note(kMinRnr, Bit::RNR_TIMEOUT);
  context.set(qpc::retry_count, all.retry_cnt & 7u);
  note(kRetry, Bit::RETRY_COUNT);
  context.set(qpc::rnr_retry, all.rnr_retry & 7u);
  note(kRnrRetry, Bit::RNR_RETRY);
  context.set(qpc::log_sra_max, log_of(all.max_rd_atomic));
  note(kMaxReads, Bit::SRA_MAX);
  context.set(qpc::log_rra_max, log_of(all.max_dest_rd_atomic));
  note(kMaxDestReads, Bit::RRA_MAX);
  const auto access = all.qp_access_flags;
  context.set(qpc::rre, (access & kRemoteRead) != 0);
  context.set(qpc::rwe, (access & kRemoteWrite) != 0);
  context.set(qpc::rae, (access & kRemoteAtomic) != 0);
  if ((access & kRemoteAtomic) != 0) {
    context.set(qpc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::IB_SPEC));
  }
  note(kAccess, Bit::RRE);
  note(kAccess, Bit::RWE);
  note(kAccess, Bit::RAE);
  return 0;
}

}  // namespace

Errno Context::change_qp(QueuePair& qp, const QpAttributes& wanted) {
  if (((wanted.attr_mask & kCurrentState) != 0 && wanted.cur_qp_state > kError) ||
      ((wanted.attr_mask & kState) != 0 && wanted.qp_state > kError)) {
    return EINVAL;
  }
  if (qp.is_target()) return change_target(qp, wanted);
  if (qp.scaling_tirn != 0) return ENOSYS;
  if (qp.raw != nullptr) return change_raw_packet_qp(qp, wanted);
  const std::uint8_t from =
      (wanted.attr_mask & kCurrentState) != 0 ? wanted.cur_qp_state : qp.condition().state;
  const std::uint8_t to = (wanted.attr_mask & kState) != 0 ? wanted.qp_state : from;
  if ((wanted.attr_mask & kPort) != 0 && wanted.port_num != kPort1) return EINVAL;
  if ((wanted.attr_mask & kPkey) != 0 && wanted.pkey_index != 0) return EINVAL;
  if ((wanted.attr_mask & kMtu) != 0 && (wanted.path_mtu < 1 || wanted.path_mtu > 5)) return EINVAL;
  const auto caps = device_.capabilities();
  if (((wanted.attr_mask & kMaxReads) != 0 &&
       !are_possible(wanted.max_rd_atomic, caps.get(spec::hca_cap::log_max_ra_req_qp))) ||
      ((wanted.attr_mask & kMaxDestReads) != 0 &&
       !are_possible(wanted.max_dest_rd_atomic, caps.get(spec::hca_cap::log_max_ra_res_qp)))) {
    return EINVAL;
  }
  if (to == kReset || to == kError) {
    if (to == kReset) {
      device_.records().remove_send_queue(qp.qpn);
      Command<spec::qp_2rst_in> in(command_opcode::QP_2RST);
      in.set(spec::qp_2rst_in::qpn, qp.qpn);
      if (!device_.commands().run(in)) return EINVAL;
    } else {
      Command<spec::qp_2err_in> in(command_opcode::QP_2ERR);
      in.set(spec::qp_2err_in::qpn, qp.qpn);
      if (!device_.commands().run(in)) return EINVAL;
    }
    qp.condition().state = to;
    return 0;
  }
  const auto* transition = std::ranges::find_if(
      kTransitions, [&](const Transition& t) { return t.from == from && t.to == to; });
  if (transition == std::end(kTransitions)) return EINVAL;
  auto all = qp.condition().attributes;
  if (from == kReset) all = {};
  merge(all, wanted);
  // The inputs of these commands are laid out alike.
  Command<spec::rst2init_qp_in> in(transition->command);
  in.set(spec::rst2init_qp_in::qpn, qp.qpn);
  const auto context = in.sub(spec::rst2init_qp_in::qpc);
  context.set(qpc::st, static_cast<std::uint32_t>(qp.service));
  std::uint32_t mask = 0;
  if (const auto wrong = describe(qp, all, wanted.attr_mask, context, mask); wrong != 0) {
    return wrong;
  }
  if (from != kReset) in.set(spec::rst2init_qp_in::opt_param_mask, mask);
  if (const auto done = device_.commands().run(in); !done) return EINVAL;
  qp.condition().attributes = all;
  qp.condition().state = to;
  if (to == kRts && from != kRts && qp.has_send_queue) {
    device_.records().add_send_queue(qp.qpn, qp.uar,
                                     reinterpret_cast<const std::uint32_t*>(qp.record + 4));
  }
  return 0;
}

namespace {

/// The device may have put it into another state.
Errno note_state(QueuePair& qp) {
  if (qp.is_target() || qp.scaling_tirn != 0) return 0;
  if (qp.raw != nullptr) {
    if (qp.condition().state == kRts && qp.raw->sender_has_failed()) qp.condition().state = kSqe;
    return 0;
  }
  Command<spec::query_qp_in> ask(command_opcode::QUERY_QP);
  ask.set(spec::query_qp_in::qpn, qp.qpn);
  const auto answer = qp.device.commands().execute<spec::query_qp_out>(ask);
  if (!answer) return EINVAL;
  const auto state =
      static_cast<spec::qp_state>(answer->get(spec::query_qp_out::qpc).get(qpc::state));
  switch (state) {
    case spec::qp_state::RST:
      qp.condition().state = kReset;
      break;
    case spec::qp_state::INIT:
      qp.condition().state = kInit;
      break;
    case spec::qp_state::RTR:
      qp.condition().state = kRtr;
      break;
    case spec::qp_state::SQER:
      qp.condition().state = kSqe;
      break;
    case spec::qp_state::ERR:
      qp.condition().state = kError;
      break;
    default:
      qp.condition().state = kRts;
  }
  return 0;
}

}  // namespace

Errno Context::query_qp(Request& request) {
  const auto in = request.get<ib_uverbs_query_qp>(UVERBS_ATTR_CORE_IN);
  auto* qp = objects_.find<QueuePair>(in.qp_handle);
  if (qp == nullptr) return EINVAL;
  const auto& attributes = qp->condition().attributes;
  ib_uverbs_query_qp_resp out{};
  out.dest = attributes.dest;
  out.max_send_wr = qp->caps.max_send_wr;
  out.max_recv_wr = qp->receive_entries;
  out.max_send_sge = qp->caps.max_send_sge;
  out.max_recv_sge = qp->caps.max_recv_sge;
  out.max_inline_data = qp->caps.max_inline_data;
  out.qkey = attributes.qkey;
  out.rq_psn = attributes.rq_psn;
  out.sq_psn = attributes.sq_psn;
  out.dest_qp_num = attributes.dest_qp_num;
  out.qp_access_flags = attributes.qp_access_flags;
  out.path_mtu = attributes.path_mtu;
  out.max_rd_atomic = attributes.max_rd_atomic;
  out.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  out.min_rnr_timer = attributes.min_rnr_timer;
  out.port_num = kPort1;
  out.timeout = attributes.timeout;
  out.retry_cnt = attributes.retry_cnt;
  out.rnr_retry = attributes.rnr_retry;
  out.sq_sig_all = qp->signals_all;
  if (const auto wrong = note_state(*qp); wrong != 0) return wrong;
  out.qp_state = out.cur_qp_state = qp->condition().state;
  return request.put(UVERBS_ATTR_CORE_OUT, out);
}

}  // namespace softhca::uverbs
