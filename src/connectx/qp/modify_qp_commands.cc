// The commands that change the state of a QP (mlx5 driver interface 7.4). qp_transition.cc lists
// the fields that each takes from its context.
#include <algorithm>
#include <utility>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/qp/qp_references.h"
#include "connectx/qp/qp_transition.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/qp/rdma.h"
#include "connectx/queue/mapped_queue.h"
#include "spec/connectx/qp.h"

namespace softhca::connectx {

namespace {

// All modify commands with a context have the same layout (mlx5 driver interface 7.2).
using modify_in = spec::connectx::rst2init_qp_in;
using spec::connectx::qp_2err_in;
using spec::connectx::qp_mtu;
using spec::connectx::qpc;

constexpr std::string_view kModifyQpSection = "mlx5 driver interface 7.4";
constexpr std::string_view kForbidden =
    "the QP's state and type do not allow this transition (IBTA 10.3.1)";

/// Checks the values that do not depend on the QP's state. The service type is ignored, because
/// CREATE_QP has set it, and UCX leaves it zero here.
CommandResult check_context(QpParts taken, util::View<qpc> context) {
  const auto mtu = static_cast<qp_mtu>(context.get(qpc::mtu));
  if ((taken & kPartMtu) != 0 && (mtu < qp_mtu::BYTES_256 || mtu > qp_mtu::BYTES_4K)) {
    return refuse(Status::BAD_PARAM, kModifyQpSection, "mtu is not one of 256 to 4096 bytes");
  }
  return {};
}

CommandResult refuse_state(std::string_view text) {
  return refuse(Status::BAD_RESOURCE_STATE, kModifyQpSection, text);
}

CommandResult modify(DriverState& driver, const Command& command) {
  const auto in = command.input<modify_in>();
  auto* qp = driver.rdma().find_qp(Qpn(in.get(modify_in::qpn)));
  if (qp == nullptr) return refuse(Status::BAD_RESOURCE, kModifyQpSection, "unknown QPN");
  const auto& transition =
      find_qp_modify(static_cast<spec::connectx::command_opcode>(command.opcode));
  if (qp->rdma_qp().state() != transition.from()) return refuse_state(transition.wrong_state);
  // IBTA 10.3.1.6: requests in progress keep the attributes with which they began.
  if (transition.from() == transition.to() && transition.from() == rdma::QpState::kSqDrain &&
      !qp->rdma_qp().drained()) {
    return refuse_state(transition.wrong_state);
  }
  const auto context = in.get(modify_in::qpc);
  auto taken = parts_taken(transition, qp->rdma_qp().type(), in.get(modify_in::opt_param_mask));
  using spec::connectx::rts2rts_qp_in;
  if (transition.opcode == spec::connectx::command_opcode::RTS2RTS_QP &&
      command.input<rts2rts_qp_in>().get(rts2rts_qp_in::opt_param_udp_sport) != 0) {
    taken |= kPartUdpSport;
  }
  if (auto checked = check_context(taken, context); !checked) return checked;

  util::Struct<qpc> merged;
  std::ranges::copy(qp->context().view().bytes(), merged.bytes().begin());
  merge_qp_context(merged, context, taken);
  // A process must not set a bus address, so its QP keeps its doorbell record.
  if (command.uid != 0) merged.set(qpc::dbr_addr, qp->context().view().get(qpc::dbr_addr));
  const auto record = merged.get(qpc::dbr_addr);
  if (record != qp->context().view().get(qpc::dbr_addr) && record % kWorkRecordAlignment != 0) {
    return refuse(Status::BAD_PARAM, kModifyQpSection, "the doorbell record is not aligned");
  }
  QpReferences references(driver.limits(), driver.resources(), driver.completion_queues(),
                          driver.rdma().shared_queues());
  auto uses = references.use_references(merged);
  if (!uses) return tl::unexpected(uses.error());
  // Linux changes the SRQ of datagram QPs only, which are never in the middle of a message.
  const bool leaves_srq =
      qp->context().uses_srq() && merged.get(qpc::srqn_rmpn_xrqn) != qp->context().srqn().value();
  if (leaves_srq && !qp->rdma_qp().give_up_receive()) {
    return refuse_state("a message is using a receive WQE of the old SRQ");
  }
  if (const auto done = driver.rdma().modify_qp(*qp, transition.to(), merged, std::move(*uses));
      !done) {
    return refuse_state(kForbidden);
  }
  return {};
}

CommandResult move_to(DriverState& driver, const Command& command, rdma::QpState to) {
  auto* qp = driver.rdma().find_qp(Qpn(command.input<qp_2err_in>().get(qp_2err_in::qpn)));
  if (qp == nullptr) return refuse(Status::BAD_RESOURCE, kModifyQpSection, "unknown QPN");
  if (const auto moved = driver.rdma().move_qp(*qp, to); !moved) {
    return refuse_state(kForbidden);
  }
  return {};
}

}  // namespace

CommandResult rst2init_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult init2init_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult init2rtr_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult rtr2rts_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult rts2rts_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult sqerr2rts_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult sqd_rts_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult rts2sqd_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult sqd2rts_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult sqd2sqd_qp(DriverState& driver, const Command& command) {
  return modify(driver, command);
}
CommandResult qp_2err(DriverState& driver, const Command& command) {
  return move_to(driver, command, rdma::QpState::kError);
}
CommandResult qp_2rst(DriverState& driver, const Command& command) {
  return move_to(driver, command, rdma::QpState::kReset);
}

}  // namespace softhca::connectx
