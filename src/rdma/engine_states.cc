// The effect of a QP's state changes on requester and responder (IBTA 10.3.1).

#include <utility>

#include "rdma/engine.h"
#include "rdma/requester.h"
#include "rdma/responder.h"

namespace softhca::rdma {

void Engine::set_state(QueuePair& qp, QpState state) {
  const auto from = std::exchange(qp.state_, state);
  qp.requester_->queue().notice_posted();
  switch (state) {
    case QpState::kReset:
      qp.requester_->reset();
      qp.responder_->reset();
      timers.remove(qp);
      ready.remove(qp);
      unreleased.remove(qp);
      congestion.forget(qp);
      qp.communication_established_ = qp.last_wqe_reached_ = false;
      return;
    case QpState::kInit:
      return;
    case QpState::kRtr:
      qp.responder_->start(qp.attributes_.rq_psn);
      return;
    case QpState::kRts:
      qp.requester_->begin_to_send(from);
      return mark_ready(qp);
    case QpState::kSqDrain:
      if (from == QpState::kRts) qp.requester_->queue().drain_reported = false;
      qp.responder_->make_room();
      return mark_ready(qp);
    case QpState::kSqError:
    case QpState::kError:
      qp.requester_->stop();
      if (state == QpState::kError) qp.responder_->stop();
      return mark_ready(qp);
  }
}

void Engine::to_error(QueuePair& qp) {
  if (qp.state_ != QpState::kError && qp.state_ != QpState::kReset) set_state(qp, QpState::kError);
}

}  // namespace softhca::rdma
