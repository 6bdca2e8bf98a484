#include "uverbs/dynamic_targets.h"

#include <cstddef>
#include <utility>

#include "spec/connectx/dct.h"
#include "spec/connectx/qp.h"
#include "uverbs/device_command.h"
#include "uverbs/devx_commands.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::dctc;

namespace {

/// The attributes of each step, all of which are required. No others are allowed.
constexpr std::uint32_t kToInit = kQpState | kQpAccess | kQpPkey | kQpPort;
constexpr std::uint32_t kToRtr = kQpState | kQpPath | kQpMtu | kQpMinRnr;

}  // namespace

Errno DynamicTarget::create(const QpCreation& creation) {
  // process_vendor_flags of mlx5_ib accepts flags that say nothing about a DCT.
  constexpr std::uint32_t kFlags = MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_SIGNATURE |
                                   MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                   MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX;
  if (const auto wrong = prepare(creation); wrong != 0) return wrong;
  if (creation.has_driver_flag(~kFlags)) return EINVAL;
  if (srq.get() == nullptr || receive_cqn == 0) return EINVAL;
  request_ = creation.in;
  return 0;
}

bool DynamicTarget::make(const QpAttributes& path) {
  const auto access = condition().access;
  Command<spec::create_dct_in> create(command_opcode::CREATE_DCT);
  create.set(spec::create_dct_in::uid, uid);
  const auto context = create.sub(spec::create_dct_in::dct_context_entry);
  context.set(dctc::user_index, request_.uidx);
  context.set(dctc::counter_set_id, device.counter_set());
  context.set(dctc::cqn, receive_cqn);
  // Short data go into CQEs as in create_dct of mlx5_ib: only if CQEs have 128 bytes.
  constexpr std::uint32_t kWide = 128;
  const auto& cq = *static_cast<const CompletionQueue*>(receive_cq.get());
  if ((request_.flags & MLX5_QP_FLAG_SCATTER_CQE) != 0 && cq.entry_size == kWide) {
    context.set(dctc::cs_res, static_cast<std::uint32_t>(spec::qp_cs_res::UP_TO_64B));
  }
  context.set(dctc::rre, (access & kQpRemoteRead) != 0);
  context.set(dctc::rwe, (access & kQpRemoteWrite) != 0);
  if ((access & kQpRemoteAtomic) != 0) {
    context.set(dctc::rae, 1);
    context.set(dctc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::UP_TO_8B));
  }
  context.set(dctc::srqn_xrqn, static_cast<SharedReceiveQueue*>(srq.get())->number);
  context.set(dctc::pd, pdn);
  context.set(dctc::dc_access_key, request_.access_key);
  context.set(dctc::port, condition().port);
  context.set(dctc::pkey_index, pkey_index_);
  context.set(dctc::min_rnr_nak, path.min_rnr_timer & dctc::min_rnr_nak.kMax);
  context.set(dctc::mtu, path.path_mtu & dctc::mtu.kMax);
  context.set(dctc::my_addr_index, path.dest.sgid_index);
  context.set(dctc::tclass, path.dest.traffic_class);
  context.set(dctc::flow_label, path.dest.flow_label & dctc::flow_label.kMax);
  context.set(dctc::hop_limit, path.dest.hop_limit);
  context.set(dctc::eth_prio, path.dest.sl & dctc::eth_prio.kMax);
  const auto out = device.commands().execute<spec::create_dct_out>(create);
  if (!out) return false;
  qpn = out->get(spec::create_dct_out::dctn);
  exists_ = true;
  return true;
}

void DynamicTarget::destroy() {
  if (!std::exchange(exists_, false)) return;
  Command<spec::drain_dct_in> drain(command_opcode::DRAIN_DCT);
  drain.set(spec::drain_dct_in::dctn, qpn);
  auto done = device.commands().run(drain);
  Command<spec::destroy_dct_in> end(command_opcode::DESTROY_DCT);
  end.set(spec::destroy_dct_in::dctn, qpn);
  if (done) done = device.commands().run(end);
  report(done);
}

void DynamicTarget::fail() {
  destroy();
  condition().state = kQpError;
}

Errno DynamicTarget::apply(QpChange& change) {
  const auto& in = change.in;
  auto& known = condition();
  if (!change.has(kQpState)) return EINVAL;
  if (known.state == kQpReset && in.qp_state == kQpInit) {
    if (in.attr_mask != kToInit) return EINVAL;
    known.access = in.qp_access_flags;
    known.port = in.port_num;
    pkey_index_ = in.pkey_index;
    known.state = kQpInit;
    return 0;
  }
  if (known.state != kQpInit || in.qp_state != kQpRtr) return EINVAL;
  if (in.attr_mask != kToRtr || !make(in)) return EINVAL;
  known.source = GidUse(device, in.dest.sgid_index);
  known.state = kQpRtr;
  return 0;
}

/// mlx5_ib_dct_query_qp: the attributes asked for, of a DCT that is in the device.
Errno DynamicTarget::query(std::uint32_t mask, ib_uverbs_query_qp_resp& out) {
  constexpr std::uint32_t kKnown =
      kQpState | kQpAccess | kQpPort | kQpMinRnr | kQpPath | kQpMtu | kQpPkey;
  if ((mask & ~kKnown) != 0 || condition().state != kQpRtr) return EINVAL;
  Command<spec::query_dct_in> ask(command_opcode::QUERY_DCT);
  ask.set(spec::query_dct_in::dctn, qpn);
  const auto answer = device.commands().execute<spec::query_dct_out>(ask);
  if (!answer) return EINVAL;
  const auto context = answer->get(spec::query_dct_out::dct_context_entry);
  const auto has = [&](std::uint32_t attribute) { return (mask & attribute) != 0; };
  const auto small = [&](auto field) { return static_cast<std::uint8_t>(context.get(field)); };
  if (has(kQpState)) out.qp_state = kQpRtr;
  if (has(kQpAccess)) out.qp_access_flags = access_of(context);
  if (has(kQpPort)) out.port_num = condition().port;
  if (has(kQpMinRnr)) out.min_rnr_timer = small(dctc::min_rnr_nak);
  if (has(kQpMtu)) out.path_mtu = small(dctc::mtu);
  if (has(kQpPkey)) out.pkey_index = static_cast<std::uint16_t>(context.get(dctc::pkey_index));
  // A DCT's address vector has no global flag, so mlx5_ib reports no path fields.
  return 0;
}

void DynamicTarget::put_dctn(mlx5_ib_modify_qp_resp& out) const {
  out.response_length = offsetof(mlx5_ib_modify_qp_resp, ece_options);
  out.dctn = qpn;
}

bool DynamicTarget::has_name(const DevxName& name) const {
  return name == DevxName{spec::object_kind::DCT, qpn};
}

}  // namespace softhca::uverbs
