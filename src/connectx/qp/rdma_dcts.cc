// Targets of dynamic connections in Rdma.
#include <new>
#include <utility>

#include "connectx/qp/rdma.h"

namespace softhca::connectx {

using spec::connectx::event_type;

Dct* Rdma::add_dct(util::View<spec::connectx::dctc> context, Dct::Uses uses) {
  auto* dct = dcts_.emplace(context, std::move(uses), *this);
  if (dct == nullptr) return nullptr;
  const CounterSetId counters(context.get(Dct::Context::counter_set_id));
  try {
    transport_.add_dc_target(dct->dctn(),
                             {.key = context.get(Dct::Context::dc_access_key),
                              .connection = dct->attributes(),
                              .completion_data = completion_writer_.data_of(context),
                              .counters = parts_.resources.q_counter(counters)},
                             dct->queues());
  } catch (const std::bad_alloc&) {
    dcts_.erase(dct->dctn());  // a DCT in the table must have its part in the transport
    throw;
  }
  return dct;
}

bool Rdma::drain_dct(Dct& dct, util::WorkBudget& work) {
  dct.state = Dct::State::DRAINING;
  if (!transport_.drain_dc_target(dct.dctn(), work)) return false;
  dct.state = Dct::State::DRAINED;
  // Drivers wait for this event after each DRAIN_DCT.
  parts_.event_queues.post(event_type::DCT_DRAINED, 0, EventQueues::dct_data(dct.dctn()));
  return true;
}

void Rdma::remove_dct(Dct& dct) {
  transport_.remove_dc_target(dct.dctn());
  dcts_.erase(dct.dctn());
}

std::uint32_t Rdma::key_violations(const Dct& dct) const {
  return transport_.find_dc_target(dct.dctn())->key_violations();
}

rdma::Fetch Rdma::fetch_receive(Dct& dct, rdma::ReceiveRequest& request) {
  return dct.failed ? rdma::Fetch::kUnreadable : shared_queues_.fetch(dct.srqn(), request);
}

/// If the CQ of a DCT fails, later requests that need a completion are refused. A DCT has no state
/// for this, in which it would accept WRITEs but no SENDs.
void Rdma::complete_receive(Dct& dct, const rdma::ReceiveCompletion& completion) {
  const CqeQueue queue{.qpn = dct.dctn(), .user_index = dct.cqe_user_index()};
  if (!completion_writer_.write_receive(dct.cqn(), queue, completion)) dct.failed = true;
}

void Rdma::complete_receive_with(Dct& dct, const rdma::ReceiveCompletion& completion,
                                 std::span<const std::byte> data) {
  const CqeQueue queue{.qpn = dct.dctn(), .user_index = dct.cqe_user_index()};
  const auto room = completion_writer_.data_of(dct.context()).of_sends;
  if (!completion_writer_.write_receive_with(dct.cqn(), queue, completion, data, room)) {
    dct.failed = true;
  }
}

/// Notifies drivers only of wrong keys. Other events of a connection are logged.
void Rdma::handle_event(Dct& dct, rdma::QpEvent event, rdma::Reason reason) {
  if (event != rdma::QpEvent::kDcKeyViolation) {
    const auto& info = rdma::describe(reason);
    return parts_.notes.info("DCT {:#x}: a connection ends: {} ({}, reason {})", dct.dctn().value(),
                             info.text, info.section, static_cast<unsigned>(reason));
  }
  if (!std::exchange(dct.armed, false)) return;
  parts_.event_queues.post(event_type::DCT_ACCESS_KEY_VIOLATION, 0,
                           EventQueues::dct_data(dct.dctn()));
}

}  // namespace softhca::connectx
