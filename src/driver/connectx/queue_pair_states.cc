// The states of a queue pair. Each transition is one command (spec/connectx/qp_commands.h).
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "driver/connectx/queue_pair.h"
#include "driver/connectx/queue_sizes.h"
#include "spec/connectx/qp_commands.h"
#include "spec/connectx/resources.h"

namespace softhca::driver::connectx {

using spec::ads;
using spec::command_opcode;
using spec::qpc;
using verbs::QpAttributes;
using Bit = spec::qp_opt_param_bit;

namespace {

/// As in mlx5 for UD: messages of up to the largest MTU.
constexpr std::uint32_t kLogDatagramMax = 12;

std::uint32_t log2_up(unsigned count) {
  return count <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(count - 1));
}

void describe_path(util::MutableView<ads> path, const verbs::Path& in) {
  path.set(ads::src_addr_index, in.source_gid_index);
  path.set(ads::hop_limit, in.hop_limit);
  path.set(ads::tclass, in.traffic_class);
  path.set(ads::flow_label, in.flow_label & ads::flow_label.kMax);
  path.set(ads::eth_prio, in.service_level & ads::eth_prio.kMax);
  path.set(ads::udp_sport, in.udp_source_port);
  std::ranges::copy(in.gid.bytes, path.sub(ads::rgid_rip).begin());
  std::ranges::copy(in.mac.bytes, path.sub(ads::rmac).begin());
}

/// Writes the rights of the peer.
void allow(util::MutableView<qpc> context, const RemoteAccess& access) {
  context.set(qpc::rre, access.read);
  context.set(qpc::rwe, access.write);
  context.set(qpc::rae, access.atomic);
  if (access.atomic) {
    context.set(qpc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::IB_SPEC));
  }
}

/// Writes the given attributes to the context. Returns the matching bits of opt_param_mask; the
/// device reads only those that are optional in the transition.
std::uint32_t describe(util::MutableView<qpc> context, const QpAttributes& in) {
  std::uint32_t mask = 0;
  const auto path = context.sub(qpc::primary_address_path);
  const auto note = [&](Bit bit) { mask |= 1u << static_cast<unsigned>(bit); };
  const auto put = [&](const auto& value, auto&& set, auto... bits) {
    if (!value) return;
    set(*value);
    (note(bits), ...);
  };
  put(in.path, [&](const auto& value) { describe_path(path, value); }, Bit::PRIMARY_ADDR_PATH);
  path.set(ads::vhca_port_num, in.port.value_or(kPort));
  put(in.access, [&](const auto& value) { allow(context, value); }, Bit::RRE, Bit::RWE, Bit::RAE);
  put(in.pkey_index, [&](auto value) { path.set(ads::pkey_index, value); }, Bit::PKEY_INDEX);
  put(in.timeout, [&](auto value) { path.set(ads::ack_timeout, value); }, Bit::ACK_TIMEOUT);
  put(in.qkey, [&](auto value) { context.set(qpc::q_key, value); }, Bit::Q_KEY);
  put(in.path_mtu, [&](auto value) { context.set(qpc::mtu, verbs::mtu_code(value)); });
  put(in.retry_count, [&](auto value) { context.set(qpc::retry_count, value); }, Bit::RETRY_COUNT);
  put(in.rnr_retry, [&](auto value) { context.set(qpc::rnr_retry, value); }, Bit::RNR_RETRY);
  put(in.receive_psn, [&](auto value) { context.set(qpc::next_rcv_psn, value); });
  put(in.send_psn, [&](auto value) { context.set(qpc::next_send_psn, value); });
  put(
      in.max_reads, [&](auto value) { context.set(qpc::log_sra_max, log2_up(value)); },
      Bit::SRA_MAX);
  put(
      in.max_peer_reads, [&](auto value) { context.set(qpc::log_rra_max, log2_up(value)); },
      Bit::RRA_MAX);
  put(
      in.min_rnr_timer, [&](auto value) { context.set(qpc::min_rnr_nak, value); },
      Bit::RNR_TIMEOUT);
  put(in.destination_qpn, [&](auto value) { context.set(qpc::remote_qpn, value); });
  return mask;
}

QpState state_of(spec::qp_state state) {
  switch (state) {
    case spec::qp_state::RST:
      return QpState::kReset;
    case spec::qp_state::INIT:
      return QpState::kInit;
    case spec::qp_state::RTR:
      return QpState::kRtr;
    case spec::qp_state::SQER:
      return QpState::kSqError;
    case spec::qp_state::SQD:
    case spec::qp_state::SQ_DRAINING:
      return QpState::kSqDrain;
    case spec::qp_state::ERR:
      return QpState::kError;
    default:
      return QpState::kRts;
  }
}

}  // namespace

util::Result<void> QueuePair::modify(QpState from, QpState to, const QpAttributes& attributes) {
  if (to == QpState::kReset) return to_reset();
  if (to == QpState::kError) return to_error();
  if (attributes.path_mtu && verbs::mtu_code(*attributes.path_mtu) == 0) {
    return util::fail(
        fmt::format("a path MTU of {} bytes does not exist (IBTA 9.7.6)", *attributes.path_mtu));
  }
  const auto* const found = find_qp_command(spec::kQpCommands, from, to, true);
  if (found == nullptr) {
    return util::fail(fmt::format("no command leads from {} to {} (mlx5 driver interface 7.4)",
                                  to_string(from), to_string(to)));
  }
  // The inputs of these commands have the same layout.
  using in_t = spec::rst2init_qp_in;
  Request<in_t> in(found->opcode);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  const bool first = from == QpState::kReset;
  describe_service(context);
  if (first) describe_objects(context);
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  context.set(qpc::mtu, static_cast<std::uint32_t>(spec::qp_mtu::BYTES_4K));
  context.set(qpc::log_msg_max,
              is_datagram_ ? kLogDatagramMax : hca_.capabilities().get(spec::hca_cap::log_max_msg));
  const auto mask = describe(context, attributes);
  if (!first) in.set(in_t::opt_param_mask, mask);
  auto done = hca_.commands().run(in);
  if (done) in_reset_ = false;
  return done;
}

util::Result<void> QueuePair::connect(const RemoteQueuePair& remote, const Connection& connection,
                                      RemoteAccess access) {
  if (auto done = modify(QpState::kReset, QpState::kInit, {.access = access}); !done) return done;
  auto done = modify(QpState::kInit, QpState::kRtr,
                     {.path = verbs::Path{.gid = remote.gid, .mac = remote.mac},
                      .path_mtu = connection.path_mtu,
                      .receive_psn = remote.psn,
                      .max_peer_reads = connection.reads,
                      .min_rnr_timer = connection.min_rnr_timer,
                      .destination_qpn = remote.qpn});
  if (!done) return done;
  return modify(QpState::kRtr, QpState::kRts,
                {.timeout = connection.ack_timeout,
                 .retry_count = connection.retry_count,
                 .rnr_retry = connection.rnr_retry,
                 .send_psn = connection.psn,
                 .max_reads = connection.reads});
}

util::Result<void> QueuePair::activate(std::uint32_t qkey) {
  if (auto done = modify(QpState::kReset, QpState::kInit, {.qkey = qkey}); !done) return done;
  if (auto done = modify(QpState::kInit, QpState::kRtr, {}); !done) return done;
  return modify(QpState::kRtr, QpState::kRts, {});
}

util::Result<void> QueuePair::to_error() {
  Request<spec::qp_2err_in> in(command_opcode::QP_2ERR);
  in.set(spec::qp_2err_in::qpn, number_);
  return hca_.commands().run(in);
}

util::Result<void> QueuePair::to_reset() {
  Request<spec::qp_2rst_in> in(command_opcode::QP_2RST);
  in.set(spec::qp_2rst_in::qpn, number_);
  auto done = hca_.commands().run(in);
  if (!done) return done;
  // The counters restart at 0; the device does not read the record in this state.
  in_reset_ = true;
  sweep();
  send_queue_.reset();
  receive_queue_.reset();
  std::ranges::fill(
      memory_.bytes().subspan(send_offset_ + send_size_, spec::doorbell_record::kSize),
      std::byte{0});
  return {};
}

util::Result<QpState> QueuePair::query_state() {
  Request<spec::query_qp_in> in(command_opcode::QUERY_QP);
  in.set(spec::query_qp_in::qpn, number_);
  const auto out =
      hca_.commands().execute<spec::query_qp_out>(in, page_list_size(send_offset_ + send_size_));
  if (!out) return tl::unexpected(out.error());
  return state_of(static_cast<spec::qp_state>(out->get(spec::query_qp_out::qpc).get(qpc::state)));
}

util::Result<void> QueuePair::attach(const Gid& group) {
  using in_t = spec::attach_to_mcg_in;
  Request<in_t> in(command_opcode::ATTACH_TO_MCG);
  in.set(in_t::qpn, number_);
  std::ranges::copy(group.bytes, in.sub(in_t::multicast_gid).begin());
  return hca_.commands().run(in);
}

util::Result<void> QueuePair::detach(const Gid& group) {
  using in_t = spec::detach_from_mcg_in;
  Request<in_t> in(command_opcode::DETACH_FROM_MCG);
  in.set(in_t::qpn, number_);
  std::ranges::copy(group.bytes, in.sub(in_t::multicast_gid).begin());
  return hca_.commands().run(in);
}

}  // namespace softhca::driver::connectx
