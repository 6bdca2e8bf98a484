// Targets of dynamic connections (DCT), which programs make as QPs of the driver's own type. Until
// RTR they are descriptions, and have no number (mlx5 driver interface 7.10).
#include <cerrno>
#include <cstring>

#include "spec/connectx/dct.h"
#include "spec/connectx/qp.h"
#include "util/log.h"
#include "uverbs/context.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::dctc;

namespace {

/// ib_qp_attr_mask: what each step needs, and it may have no more.
constexpr std::uint32_t kState = 1;
constexpr std::uint32_t kToInit = kState | 8 | 0x10 | 0x20;       // access, P_Key, port
constexpr std::uint32_t kToRtr = kState | 0x80 | 0x100 | 0x8000;  // path, MTU, RNR timer
/// ib_qp_state.
enum State : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kError };
/// ib_access_flags.
enum Access : std::uint32_t { kRemoteWrite = 2, kRemoteRead = 4, kRemoteAtomic = 8 };

bool make_target(QueuePair& target, const QpAttributes& path) {
  const auto& first = target.condition().attributes;
  Command<spec::create_dct_in> create(command_opcode::CREATE_DCT);
  create.set(spec::create_dct_in::uid, target.uid);
  const auto context = create.sub(spec::create_dct_in::dct_context_entry);
  context.set(dctc::user_index, target.user_index);
  context.set(dctc::counter_set_id, target.device.counter_set());
  context.set(dctc::cqn, target.receive_cqn);
  context.set(dctc::rre, (first.qp_access_flags & kRemoteRead) != 0);
  context.set(dctc::rwe, (first.qp_access_flags & kRemoteWrite) != 0);
  if ((first.qp_access_flags & kRemoteAtomic) != 0) {
    context.set(dctc::rae, 1);
    context.set(dctc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::IB_SPEC));
  }
  context.set(dctc::srqn_xrqn, static_cast<SharedQueue*>(target.srq.get())->number);
  context.set(dctc::pd, target.pdn);
  context.set(dctc::dc_access_key, target.access_key);
  context.set(dctc::port, first.port_num);
  context.set(dctc::pkey_index, first.pkey_index);
  context.set(dctc::min_rnr_nak, path.min_rnr_timer & 0x1fu);
  context.set(dctc::mtu, path.path_mtu & 7u);
  context.set(dctc::my_addr_index, path.dest.sgid_index);
  context.set(dctc::tclass, path.dest.traffic_class);
  context.set(dctc::flow_label, path.dest.flow_label & 0xfffff);
  context.set(dctc::hop_limit, path.dest.hop_limit);
  context.set(dctc::eth_prio, path.dest.sl & 7u);
  const auto out = target.device.commands().execute<spec::create_dct_out>(create);
  if (!out) return false;
  target.qpn = out->get(spec::create_dct_out::dctn);
  target.exists = true;
  return true;
}

}  // namespace

void QueuePair::destroy_target() {
  if (!std::exchange(exists, false)) return;
  Command<spec::drain_dct_in> drain(command_opcode::DRAIN_DCT);
  drain.set(spec::drain_dct_in::dctn, qpn);
  auto done = device.commands().run(drain);
  Command<spec::destroy_dct_in> destroy(command_opcode::DESTROY_DCT);
  destroy.set(spec::destroy_dct_in::dctn, qpn);
  if (done) done = device.commands().run(destroy);
  if (!done) util::log(util::LogLevel::kWarning, "{}", done.error().message);
}

Errno Context::describe_target(QueuePair& target, const mlx5_ib_create_qp& in) {
  constexpr std::uint32_t kFlags =
      MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE;
  if ((in.flags & ~kFlags) != 0) return EOPNOTSUPP;
  const auto* srq = static_cast<SharedQueue*>(target.srq.get());
  if (srq == nullptr || target.receive_cqn == 0) return EINVAL;
  target.access_key = in.access_key;
  target.user_index = in.uidx;
  return 0;
}

Errno Context::change_target(QueuePair& target, const QpAttributes& wanted) {
  if ((wanted.attr_mask & kState) == 0) return EINVAL;
  if (target.condition().state == kReset && wanted.qp_state == kInit) {
    if (wanted.attr_mask != kToInit || wanted.port_num != 1 || wanted.pkey_index != 0) {
      return EINVAL;
    }
    target.condition().attributes = wanted;
    target.condition().state = kInit;
    return 0;
  }
  if (target.condition().state != kInit || wanted.qp_state != kRtr) return EINVAL;
  if (wanted.attr_mask != kToRtr || wanted.path_mtu < 1 || wanted.path_mtu > 5 ||
      wanted.dest.is_global == 0 || device_.gid(wanted.dest.sgid_index) == nullptr) {
    return EINVAL;
  }
  if (!make_target(target, wanted)) return EINVAL;
  auto& all = target.condition().attributes;
  all.dest = wanted.dest;
  all.path_mtu = wanted.path_mtu;
  all.min_rnr_timer = wanted.min_rnr_timer;
  target.condition().state = kRtr;
  return 0;
}

}  // namespace softhca::uverbs
