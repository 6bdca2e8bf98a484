#include "connectx/qp/queue_pair.h"

#include <utility>

#include "connectx/memory/umr.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {

using rdma::Fetch;
using rdma::QpState;
using rdma::WorkStatus;
using spec::connectx::event_type;

namespace {

event_type type_of(rdma::QpEvent event) {
  switch (event) {
    case rdma::QpEvent::kCommunicationEstablished:
      return event_type::COMMUNICATION_ESTABLISHED;
    case rdma::QpEvent::kSqDrained:
      return event_type::SQ_DRAINED;
    case rdma::QpEvent::kLastWqeReached:
      return event_type::LAST_WQE_REACHED;
    case rdma::QpEvent::kCatastrophic:
      break;
    case rdma::QpEvent::kInvalidRequest:
    case rdma::QpEvent::kInvalidXrceth:
    case rdma::QpEvent::kXrcDomainViolation:
      return event_type::INVALID_REQUEST_LOCAL_WQ_ERROR;
    case rdma::QpEvent::kAccessError:
      return event_type::LOCAL_ACCESS_VIOLATION_WQ_ERROR;
    case rdma::QpEvent::kDcKeyViolation:
      return event_type::DCT_ACCESS_KEY_VIOLATION;
  }
  return event_type::LOCAL_WQ_CATASTROPHIC_ERROR;
}

bool is_error(rdma::QpEvent event) {
  switch (event) {
    case rdma::QpEvent::kCommunicationEstablished:
    case rdma::QpEvent::kSqDrained:
    case rdma::QpEvent::kLastWqeReached:
      return false;
    default:
      return true;
  }
}

}  // namespace

QueuePair::QueuePair(Qpn qpn, QpContext::View context, MappedQueue queue, std::uint32_t alignment,
                     Rdma& rdma)
    : qpn_(qpn),
      context_(context),
      queue_(std::move(queue)),
      send_queue_(QpContext::make_send_ring(context, alignment)),
      receive_queue_(QpContext::make_receive_ring(context)),
      rdma_(rdma) {
  set_rules();
}

void QueuePair::bind(rdma::QueuePair& rdma_qp, bool atomics) {
  rdma_qp_ = &rdma_qp;
  send_queue_.bind(rdma_qp.service().datagram, atomics);
}

bool QueuePair::follow_fault_rules(const hca::FaultHook& faults) {
  if (faulty_ != nullptr) return faulty_->follow_rules();
  if (!faults) return false;
  const auto opcode_of = [](const rdma::SendRequest& request) {
    const auto opcode = SendCookie::unpack(request.cookie).opcode;
    return to_string(static_cast<spec::connectx::wqe_opcode>(opcode));
  };
  faulty_ = std::make_unique<hca::FaultyQueues>(hca::FaultyQueues::Parts{
      .faults = faults, .qp = *rdma_qp_, .queues = *this, .opcode_of = opcode_of});
  return false;
}

void QueuePair::set_context(QpContext::View context, const QueueMapper& mapper) {
  context_.replace_with(context);
  const auto address = context.get(QpContext::Layout::dbr_addr);
  if (address != queue_.dbr_addr) {
    queue_.dbr_addr = address;
    queue_.record = mapper.record(address);
    queue_.record_use = {};
  }
  set_rules();
}

void QueuePair::set_rules() {
  send_queue_.set_rules(qpn_, context_);
  receive_queue_.set_rules(qpn_, context_);
}

void QueuePair::reset_rings() {
  send_queue_.reset();
  receive_queue_.ring().reset();
  if (faulty_ != nullptr) faulty_->reset();
  failure = hca::Failure::kNone;
}

// Interface for the transport ---------------------------------------------------------------------

Fetch QueuePair::fetch_send(rdma::SendRequest& request) {
  const auto state = rdma_qp_->state();
  if (state == QpState::kError || state == QpState::kSqError) {
    return send_queue_.flush(queue_, request);
  }
  return send_queue_.fetch(queue_, rdma_.wqe_reader(), request);
}

Fetch QueuePair::fetch_datagram_fast(std::uint64_t destination, std::uint32_t bytes_max,
                                     rdma::ShortDatagram& datagram) {
  return send_queue_.fetch_datagram_fast(destination, bytes_max, queue_, rdma_.wqe_reader(),
                                         datagram);
}

void QueuePair::restart_send() { send_queue_.restart(queue_.record); }

/// Executes a UMR, which changes a memory key, or a SET_PSV, which sets the initial values of
/// signatures.
rdma::LocalOutcome QueuePair::execute_local(const rdma::SendRequest& request, bool again) {
  const auto& parts = rdma_.parts();
  const auto& attributes = rdma_qp_->attributes();
  // A process may set fre, but must not use bus addresses.
  const auto owner = parts.resources.user_contexts().owner(Owned::QP, qpn_.value());
  const UmrUser user{.pd = attributes.pd,
                     .qpn = qpn_,
                     .reserved_lkey = attributes.reserved_lkey,
                     .any_pd = context_.service() == QpContext::Service::REG_UMR,
                     .may_register = context_.view().get(QpContext::Layout::fre) != 0 &&
                                     owner == UserContexts::kKernel,
                     .again = again};
  using spec::connectx::wqe_opcode;
  auto& keys = parts.memory_keys;
  const auto opcode = SendCookie::unpack(request.cookie).opcode;
  if (static_cast<wqe_opcode>(opcode) == wqe_opcode::SET_PSV) {
    return keys.psvs().set(request.inline_data, user);
  }
  return keys.update(rdma::MKey(request.immediate), Umr(request.inline_data), user);
}

Fetch QueuePair::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) {
  if (context_.uses_srq()) return rdma_.shared_queues().fetch(context_.srqn(), request);
  if (context_.is_xrc()) return rdma_.shared_queues().fetch(Srqn(srqn.value()), request);
  const bool flushes = rdma_qp_->flushes_receives();
  if (flushes) rdma_.watch(*this);
  return receive_queue_.fetch(queue_, rdma_.wqe_reader(), flushes, request);
}

bool QueuePair::fetch_receive_fast(rdma::ReceivePiece& piece) {
  return receive_queue_.fetch_fast(queue_, piece);
}

void QueuePair::complete_send(const rdma::SendCompletion& completion) {
  const bool failed = completion.status != WorkStatus::kSuccess;
  const auto cookie = SendCookie::unpack(completion.cookie);
  if (failed && !send_queue_.reports_failure(cookie)) return;
  const CqeQueue queue{.qpn = qpn_, .user_index = context_.send_user_index()};
  const bool event = failed || has_event(cookie.completion);
  auto& writer = rdma_.completion_writer();
  if (!writer.write_send(context_.send_cqn(), queue, completion, event)) rdma_.fail_soon(*this);
}

void QueuePair::complete_send_with(const rdma::SendCompletion& completion,
                                   std::span<const std::byte> data) {
  const CqeQueue queue{.qpn = qpn_, .user_index = context_.send_user_index()};
  const auto room = rdma_qp_->options().completion_data.of_reads;
  auto& writer = rdma_.completion_writer();
  if (!writer.write_send_with(context_.send_cqn(), queue, completion, data, room)) {
    rdma_.fail_soon(*this);
  }
}

void QueuePair::complete_receive(const rdma::ReceiveCompletion& completion) {
  if (context_.is_xrc()) return complete_xrc_receive(completion);
  const CqeQueue queue{.qpn = qpn_,
                       .user_index = context_.receive_user_index(),
                       .is_datagram = send_queue_.is_datagram(),
                       .is_gsi = context_.is_gsi()};
  auto& writer = rdma_.completion_writer();
  if (!writer.write_receive(context_.receive_cqn(), queue, completion)) rdma_.fail_soon(*this);
}

/// Completes a receive of XRC, whose CQ and user index are the SRQ's.
void QueuePair::complete_xrc_receive(const rdma::ReceiveCompletion& completion) {
  const auto* srq = rdma_.shared_queues().find(Srqn(completion.srqn.value()));
  if (srq == nullptr) return;
  const CqeQueue queue{.qpn = qpn_, .user_index = srq->cqe_user_index()};
  auto& writer = rdma_.completion_writer();
  if (!writer.write_receive(srq->attributes().cqn, queue, completion)) rdma_.fail_soon(*this);
}

void QueuePair::complete_receive_with(const rdma::ReceiveCompletion& completion,
                                      std::span<const std::byte> data) {
  const CqeQueue queue{.qpn = qpn_, .user_index = context_.receive_user_index()};
  const auto room = rdma_qp_->options().completion_data.of_sends;
  auto& writer = rdma_.completion_writer();
  if (!writer.write_receive_with(context_.receive_cqn(), queue, completion, data, room)) {
    rdma_.fail_soon(*this);
  }
}

void QueuePair::handle_signature_error(const rdma::SignatureError& error, bool sends,
                                       rdma::XrcSrqn srqn) {
  const bool to_send_cq = sends || context_.receives_nothing();
  auto cqn = to_send_cq ? context_.send_cqn() : context_.receive_cqn();
  if (!sends && context_.is_xrc()) {
    // An XRC target has no CQ of its own. The WRITE or READ names the SRQ whose CQ is used.
    const auto* srq = rdma_.shared_queues().find(Srqn(srqn.value()));
    if (srq == nullptr) return;
    cqn = srq->attributes().cqn;
  }
  auto& writer = rdma_.completion_writer();
  if (!writer.write_signature_error(cqn, qpn_, error)) rdma_.fail_soon(*this);
}

void QueuePair::handle_event(rdma::QpEvent event, rdma::Reason reason) {
  const auto& parts = rdma_.parts();
  const auto type = type_of(event);
  if (is_error(event)) {
    const auto& info = rdma::describe(reason);
    parts.notes.info("QP {:#x}: {}: {} ({}, reason {})", qpn_.value(), to_string(type), info.text,
                     info.section, static_cast<unsigned>(reason));
  }
  parts.event_queues.post(type, 0, EventQueues::queue_data(qpn_));
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
