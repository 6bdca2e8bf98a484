#include "driver/connectx/verbs_queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "driver/connectx/queue_sizes.h"
#include "spec/connectx/qp_commands.h"
#include "spec/connectx/resources.h"

namespace softhca::driver::connectx {

using spec::ads;
using spec::command_opcode;
using spec::qpc;
using verbs::QpAttributes;
using verbs::QpState;
using Bit = spec::qp_opt_param_bit;

namespace {

/// As in mlx5 for UD: messages of up to the largest MTU.
constexpr std::uint32_t kLogDatagramMax = 12;

spec::qp_mtu code_of_mtu(unsigned bytes) {
  // The code of 256 is 1; each further code doubles the size (IBTA 9.7.6).
  return static_cast<spec::qp_mtu>(std::countr_zero(bytes) - 7);
}

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
  put(in.path_mtu,
      [&](auto value) { context.set(qpc::mtu, static_cast<std::uint32_t>(code_of_mtu(value))); });
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

VerbsQueuePair::VerbsQueuePair(ProtectionDomain& pd, spec::service_type service,
                               const Options& options)
    : QueuePairBase(pd, options, service,
                    service == spec::service_type::UD
                        ? SendQueue::blocks_per_datagram(options.send)
                        : SendQueue::blocks_per_request(options.send)) {}

util::Result<std::unique_ptr<VerbsQueuePair>> VerbsQueuePair::create(ProtectionDomain& pd,
                                                                     spec::service_type service,
                                                                     const Options& options) {
  std::unique_ptr<VerbsQueuePair> qp(new VerbsQueuePair(pd, service, options));
  if (auto done = qp->create_on_device(); !done) return tl::unexpected(done.error());
  return qp;
}

util::Result<void> VerbsQueuePair::modify(QpState from, QpState to,
                                          const QpAttributes& attributes) {
  if (to == QpState::kReset) return to_reset();
  if (to == QpState::kError) return to_error();
  const auto* const found = find_qp_command(spec::kQpCommands, from, to, true);
  if (found == nullptr) {
    return util::fail(fmt::format("no command leads from {} to {} (mlx5 driver interface 7.4)",
                                  to_string(from), to_string(to)));
  }
  auto done = change(found->opcode, attributes);
  if (done && found->opcode == command_opcode::RST2INIT_QP) leave_reset();
  return done;
}

util::Result<void> VerbsQueuePair::change(command_opcode command, const QpAttributes& attributes) {
  // The inputs of these commands have the same layout.
  using in_t = spec::rst2init_qp_in;
  Request<in_t> in(command);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  const bool first = command == command_opcode::RST2INIT_QP;
  if (first) {
    describe_init(context);
  } else {
    describe_service(context);
  }
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  context.set(qpc::mtu, static_cast<std::uint32_t>(spec::qp_mtu::BYTES_4K));
  context.set(qpc::log_msg_max, is_datagram()
                                    ? kLogDatagramMax
                                    : hca().capabilities().get(spec::hca_cap::log_max_msg));
  const auto mask = describe(context, attributes);
  if (!first) in.set(in_t::opt_param_mask, mask);
  return hca().commands().run(in);
}

util::Result<QpState> VerbsQueuePair::query_state() {
  const auto state = QueuePairBase::query_state();
  if (!state) return tl::unexpected(state.error());
  return state_of(*state);
}

std::size_t VerbsQueuePair::post_send(std::span<const SendRequest> requests, PostStatus& status) {
  status = in_reset() ? PostStatus::kWrongState : PostStatus::kOk;
  std::size_t posted = 0;
  const bool datagrams = is_datagram();
  while (status == PostStatus::kOk && posted < requests.size()) {
    const auto& request = requests[posted];
    status = datagrams ? send_queue().post_datagram(request) : send_queue().post(request);
    if (status == PostStatus::kOk) ++posted;
  }
  if (posted != 0) ring_send_doorbell();
  return posted;
}

std::size_t VerbsQueuePair::post_receive(std::span<const ReceiveRequest> requests,
                                         PostStatus& status) {
  status = PostStatus::kOk;
  std::size_t posted = 0;
  while (posted < requests.size()) {
    status = QueuePairBase::post_receive(requests[posted]);
    if (status != PostStatus::kOk) break;
    ++posted;
  }
  return posted;
}

util::Result<void> VerbsQueuePair::attach(const Gid& group) {
  using in_t = spec::attach_to_mcg_in;
  Request<in_t> in(command_opcode::ATTACH_TO_MCG);
  in.set(in_t::qpn, number_);
  std::ranges::copy(group.bytes, in.sub(in_t::multicast_gid).begin());
  return hca().commands().run(in);
}

util::Result<void> VerbsQueuePair::detach(const Gid& group) {
  using in_t = spec::detach_from_mcg_in;
  Request<in_t> in(command_opcode::DETACH_FROM_MCG);
  in.set(in_t::qpn, number_);
  std::ranges::copy(group.bytes, in.sub(in_t::multicast_gid).begin());
  return hca().commands().run(in);
}

}  // namespace softhca::driver::connectx
