// Requests that a QP executes locally: UMRs change memory keys, and SET_PSV sets the initial values
// of their signatures. Also reports signature errors.

#include "connectx/memory/umr.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {

rdma::LocalOutcome Rdma::execute_local(QueuePair& qp, const rdma::SendRequest& request,
                                       bool again) {
  const auto& attributes = qp.rdma_qp().attributes();
  // A process may set fre, but must not use bus addresses.
  const auto owner = parts_.resources.user_contexts().owner(Owned::kQueue, qp.qpn().value());
  const UmrUser user{.pd = attributes.pd,
                     .qpn = qp.qpn(),
                     .reserved_lkey = attributes.reserved_lkey,
                     .any_pd = qp.context().service() == QpContext::Service::REG_UMR,
                     .may_register = qp.context().view().get(QpContext::Layout::fre) != 0 &&
                                     owner == UserContexts::kKernel,
                     .again = again};
  using spec::connectx::wqe_opcode;
  auto& keys = parts_.memory_keys;
  const auto opcode = SendCookie::unpack(request.cookie).opcode;
  if (static_cast<wqe_opcode>(opcode) == wqe_opcode::SET_PSV) {
    return keys.psvs().set(request.inline_data, user);
  }
  return keys.update(rdma::MKey(request.immediate), Umr(request.inline_data), user);
}

/// Runs the kernel's REG_UMR QPs. Those of processes wait for a whole turn, because a process may
/// post any request to them.
void Rdma::run_key_changes(util::Time now, util::WorkBudget& work) {
  set_now(now);
  transport_.note_time(now);
  for (const auto qpn : umr_queues_) {
    const auto owner = parts_.resources.user_contexts().owner(Owned::kQueue, qpn.value());
    if (owner == UserContexts::kKernel) transport_.run_only(find_qp(qpn)->rdma_qp(), work);
  }
}

void Rdma::handle_signature_error(QueuePair& qp, const rdma::SignatureError& error, bool sends,
                                  rdma::XrcSrqn srqn) {
  const bool to_send_cq = sends || qp.context().receives_nothing();
  auto cqn = to_send_cq ? qp.context().send_cqn() : qp.context().receive_cqn();
  if (!sends && qp.context().is_xrc()) {
    // An XRC target has no CQ of its own. The WRITE or READ names the SRQ whose CQ is used.
    const auto* srq = shared_queues_.find(Srqn(srqn.value()));
    if (srq == nullptr) return;
    cqn = srq->attributes().cqn;
  }
  if (!completion_writer_.write_signature_error(cqn, qp.qpn(), error)) fail_soon(qp);
}

}  // namespace softhca::connectx
