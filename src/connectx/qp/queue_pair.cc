#include "connectx/qp/queue_pair.h"

#include <utility>

#include "connectx/qp/rdma.h"

namespace softhca::connectx {

QueuePair::QueuePair(Qpn qpn, QpContext::View context, MappedQueue queue, std::uint32_t alignment,
                     Rdma& rdma)
    : qpn_(qpn),
      context_(context),
      queue_(std::move(queue)),
      send_queue_(QpContext::make_send_ring(context, alignment)),
      receive_ring_(QpContext::make_receive_ring(context)),
      rdma_(rdma) {
  send_queue_.set_rules(qpn_, context_);
}

void QueuePair::bind(rdma::QueuePair& rdma_qp, bool atomics) {
  rdma_qp_ = &rdma_qp;
  send_queue_.bind(rdma_qp.service().datagram, atomics);
}

void QueuePair::set_context(QpContext::View context, const QueueMapper& mapper) {
  context_.set(context);
  const auto address = context.get(QpContext::Layout::dbr_addr);
  if (address != queue_.dbr_addr) {
    queue_.dbr_addr = address;
    queue_.record = mapper.record(address);
    queue_.record_use = {};
  }
  send_queue_.set_rules(qpn_, context_);
}

void QueuePair::reset_rings() {
  send_queue_.reset();
  receive_ring_.reset();
  fails = false;
}

// Interface for the transport ---------------------------------------------------------------------

rdma::Fetch QueuePair::fetch_send(rdma::SendRequest& request) {
  const auto state = rdma_qp_->state();
  if (state == rdma::QpState::kError || state == rdma::QpState::kSqError) {
    return send_queue_.flush(queue_, request);
  }
  return send_queue_.fetch(queue_, rdma_.wqe_reader(), request);
}
rdma::Fetch QueuePair::fetch_short_datagram(std::uint64_t destination, std::uint32_t bytes_max,
                                            rdma::ShortDatagram& datagram) {
  return send_queue_.fetch_short_datagram(destination, bytes_max, queue_, rdma_.wqe_reader(),
                                          datagram);
}
void QueuePair::restart_send() { send_queue_.restart(queue_.record); }
rdma::LocalOutcome QueuePair::execute_local(const rdma::SendRequest& request, bool again) {
  return rdma_.execute_local(*this, request, again);
}
rdma::Fetch QueuePair::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) {
  return rdma_.fetch_receive(*this, request, srqn);
}
bool QueuePair::fetch_receive_piece(rdma::ReceivePiece& piece) {
  return rdma_.fetch_receive_piece(*this, piece);
}
void QueuePair::complete_send(const rdma::SendCompletion& completion) {
  rdma_.complete_send(*this, completion);
}
void QueuePair::complete_receive(const rdma::ReceiveCompletion& completion) {
  rdma_.complete_receive(*this, completion);
}
void QueuePair::complete_send_with(const rdma::SendCompletion& completion,
                                   std::span<const std::byte> data) {
  rdma_.complete_send_with(*this, completion, data);
}
void QueuePair::complete_receive_with(const rdma::ReceiveCompletion& completion,
                                      std::span<const std::byte> data) {
  rdma_.complete_receive_with(*this, completion, data);
}
void QueuePair::handle_signature_error(const rdma::SignatureError& error, bool sends,
                                       rdma::XrcSrqn srqn) {
  rdma_.handle_signature_error(*this, error, sends, srqn);
}
void QueuePair::handle_event(rdma::QpEvent event, rdma::Reason reason) {
  rdma_.handle_event(*this, event, reason);
}
rdma::FaultAnswer QueuePair::open_fault(const rdma::PageFault& fault) {
  PageFaults::Place place{.number = qpn_, .srqn = {}};
  if (context_.is_xrc()) {
    place.srqn = Srqn(fault.srqn.value());
  } else if (context_.uses_srq()) {
    place.srqn = context_.srqn();
  }
  return rdma_.page_faults().open(fault, place);
}
void QueuePair::close_fault() { rdma_.page_faults().close(); }

}  // namespace softhca::connectx
