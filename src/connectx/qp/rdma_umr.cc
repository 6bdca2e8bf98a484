// What QPs carry out themselves: UMR, by which they change memory keys.

#include "connectx/memory/umr.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {

rdma::LocalOutcome Rdma::execute_local(QueuePair& qp, const rdma::SendRequest& request,
                                       bool again) {
  const auto& attributes = qp.rdma_qp().attributes();
  // A process may set fre, but has no bus addresses to tell.
  const auto owner = parts_.resources.user_contexts().owner(Owned::kQueue, qp.qpn().value());
  const UmrUser user{
      .pd = attributes.pd,
      .qpn = qp.qpn(),
      .reserved_lkey = attributes.reserved_lkey,
      .any_pd = qp.service() == QueuePair::Service::REG_UMR,
      .may_register = qp.context().get(QueuePair::Qpc::fre) != 0 && owner == UserContexts::kKernel,
      .again = again};
  return parts_.memory_keys.update(rdma::MKey(request.immediate), Umr(request.inline_data), user);
}

}  // namespace softhca::connectx
