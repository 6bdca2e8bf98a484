#include "uverbs/dynamic_targets.h"

#include <cerrno>
#include <utility>

#include "spec/connectx/dct.h"
#include "spec/connectx/qp.h"
#include "util/log.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::dctc;

namespace {

/// The attributes of each step, all of which are required. No others are allowed.
constexpr std::uint32_t kToInit = kQpState | kQpAccess | kQpPkey | kQpPort;
constexpr std::uint32_t kToRtr = kQpState | kQpPath | kQpMtu | kQpMinRnr;

/// Asks for short data in CQEs as create_dct of mlx5_ib does: only if CQEs have 128 bytes.
void describe_data_in_cqes(const QueuePair& target, util::MutableView<dctc> context) {
  constexpr std::uint32_t kWide = 128;
  const auto& cq = *static_cast<const CompletionQueue*>(target.receive_cq.get());
  const bool asks = (target.target_request.flags & MLX5_QP_FLAG_SCATTER_CQE) != 0;
  if (!asks || cq.entry_size != kWide) return;
  context.set(dctc::cs_res, static_cast<std::uint32_t>(spec::qp_cs_res::UP_TO_64B));
}

bool make_target(QueuePair& target, const QpAttributes& path) {
  const auto& first = target.target_attributes;
  Command<spec::create_dct_in> create(command_opcode::CREATE_DCT);
  create.set(spec::create_dct_in::uid, target.uid);
  const auto context = create.sub(spec::create_dct_in::dct_context_entry);
  context.set(dctc::user_index, target.target_request.uidx);
  context.set(dctc::counter_set_id, target.device.counter_set());
  context.set(dctc::cqn, target.receive_cqn);
  describe_data_in_cqes(target, context);
  context.set(dctc::rre, (first.qp_access_flags & kQpRemoteRead) != 0);
  context.set(dctc::rwe, (first.qp_access_flags & kQpRemoteWrite) != 0);
  if ((first.qp_access_flags & kQpRemoteAtomic) != 0) {
    context.set(dctc::rae, 1);
    context.set(dctc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::UP_TO_8B));
  }
  context.set(dctc::srqn_xrqn, static_cast<SharedQueue*>(target.srq.get())->number);
  context.set(dctc::pd, target.pdn);
  context.set(dctc::dc_access_key, target.target_request.access_key);
  context.set(dctc::port, first.port_num);
  context.set(dctc::pkey_index, first.pkey_index);
  context.set(dctc::min_rnr_nak, path.min_rnr_timer & dctc::min_rnr_nak.kMax);
  context.set(dctc::mtu, path.path_mtu & dctc::mtu.kMax);
  context.set(dctc::my_addr_index, path.dest.sgid_index);
  context.set(dctc::tclass, path.dest.traffic_class);
  context.set(dctc::flow_label, path.dest.flow_label & dctc::flow_label.kMax);
  context.set(dctc::hop_limit, path.dest.hop_limit);
  context.set(dctc::eth_prio, path.dest.sl & dctc::eth_prio.kMax);
  const auto out = target.device.commands().execute<spec::create_dct_out>(create);
  if (!out) return false;
  target.qpn = out->get(spec::create_dct_out::dctn);
  target.exists = true;
  return true;
}

}  // namespace

void destroy_target(QueuePair& target) {
  if (!std::exchange(target.exists, false)) return;
  Command<spec::drain_dct_in> drain(command_opcode::DRAIN_DCT);
  drain.set(spec::drain_dct_in::dctn, target.qpn);
  auto done = target.device.commands().run(drain);
  Command<spec::destroy_dct_in> destroy(command_opcode::DESTROY_DCT);
  destroy.set(spec::destroy_dct_in::dctn, target.qpn);
  if (done) done = target.device.commands().run(destroy);
  if (!done) util::log(util::LogLevel::kWarning, "{}", done.error().message);
}

Errno describe_target(QueuePair& target, const mlx5_ib_create_qp& in) {
  // process_vendor_flags of mlx5_ib accepts flags that say nothing about a DCT.
  constexpr std::uint32_t kFlags = MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_SIGNATURE |
                                   MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                   MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX;
  if ((in.flags & ~kFlags) != 0) return EINVAL;
  const auto* srq = static_cast<SharedQueue*>(target.srq.get());
  if (srq == nullptr || target.receive_cqn == 0) return EINVAL;
  target.target_request = in;
  return 0;
}

Errno change_target(QueuePair& target, const QpAttributes& wanted) {
  if ((wanted.attr_mask & kQpState) == 0) return EINVAL;
  auto& known = target.condition();
  if (known.state == kQpReset && wanted.qp_state == kQpInit) {
    if (wanted.attr_mask != kToInit) return EINVAL;
    target.target_attributes = wanted;
    known.port = wanted.port_num;
    known.state = kQpInit;
    return 0;
  }
  if (known.state != kQpInit || wanted.qp_state != kQpRtr) return EINVAL;
  if (wanted.attr_mask != kToRtr || !make_target(target, wanted)) return EINVAL;
  known.source = GidUse(target.device, wanted.dest.sgid_index);
  known.state = kQpRtr;
  return 0;
}

}  // namespace softhca::uverbs
