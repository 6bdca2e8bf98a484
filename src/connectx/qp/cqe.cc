#include "connectx/qp/cqe.h"

#include "connectx/queue/error_cqe.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using rdma::WorkStatus;
using spec::connectx::cqe_opcode;
using spec::connectx::cqe_syndrome;

constexpr std::uint32_t kWqeCounterMask = 0xFFFF;

template <class Enum>
constexpr std::uint32_t code(Enum value) {
  return static_cast<std::uint32_t>(value);
}

/// Maps the status of IBTA 11.6.2 to the syndrome of error CQEs.
cqe_syndrome syndrome_for(WorkStatus status) {
  switch (status) {
    case WorkStatus::kLocalLength:
      return cqe_syndrome::LOCAL_LENGTH_ERROR;
    case WorkStatus::kLocalQpOperation:
      return cqe_syndrome::LOCAL_QP_OPERATION_ERROR;
    case WorkStatus::kLocalProtection:
      return cqe_syndrome::LOCAL_PROTECTION_ERROR;
    case WorkStatus::kFlushed:
      return cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR;
    case WorkStatus::kMemoryWindowBind:
      return cqe_syndrome::MEMORY_WINDOW_BIND_ERROR;
    case WorkStatus::kBadResponse:
      return cqe_syndrome::BAD_RESPONSE_ERROR;
    case WorkStatus::kLocalAccess:
      return cqe_syndrome::LOCAL_ACCESS_ERROR;
    case WorkStatus::kRemoteInvalidRequest:
      return cqe_syndrome::REMOTE_INVALID_REQUEST_ERROR;
    case WorkStatus::kRemoteAccess:
      return cqe_syndrome::REMOTE_ACCESS_ERROR;
    case WorkStatus::kRemoteOperation:
      return cqe_syndrome::REMOTE_OPERATION_ERROR;
    case WorkStatus::kTransportRetryExceeded:
      return cqe_syndrome::TRANSPORT_RETRY_COUNTER_EXCEEDED;
    case WorkStatus::kRnrRetryExceeded:
      return cqe_syndrome::RNR_RETRY_COUNTER_EXCEEDED;
    case WorkStatus::kSuccess:
      break;
  }
  return cqe_syndrome::LOCAL_QP_OPERATION_ERROR;
}

}  // namespace

void encode_signature_error(Cqe& bytes, Qpn qpn, const rdma::SignatureError& error) {
  using Layout = spec::connectx::cqe_signature_error;
  using rdma::SignaturePart;
  using spec::connectx::sigerr_domain;
  bytes.fill(std::byte{0});
  const util::MutableView<Layout> cqe(bytes);
  cqe.set(Layout::expected_trans_sig, error.expected);
  cqe.set(Layout::actual_trans_sig, error.actual);
  cqe.set(Layout::expected_ref_tag, error.expected_ref_tag);
  cqe.set(Layout::actual_ref_tag, error.actual_ref_tag);
  cqe.set(Layout::guard_error, error.part == SignaturePart::kGuard);
  cqe.set(Layout::app_tag_error, error.part == SignaturePart::kAppTag);
  cqe.set(Layout::ref_tag_error, error.part == SignaturePart::kRefTag);
  const bool wire = error.side == rdma::SignatureSide::kWire;
  cqe.set(Layout::domain, code(wire ? sigerr_domain::WIRE : sigerr_domain::MEMORY));
  cqe.set(Layout::mkey, error.key.value());
  cqe.set(Layout::sig_err_offset, error.offset);
  cqe.set(Layout::qpn, qpn.value());
  cqe.set(Layout::opcode, code(cqe_opcode::SIGNATURE_ERROR));
}

void encode_requester_error(Cqe& bytes, const CqeQueue& queue,
                            const rdma::SendCompletion& completion) {
  const auto cookie = SendCookie::unpack(completion.cookie);
  encode_error_cqe(bytes, {.queue = ErrorQueue::kQpSends,
                           .syndrome = syndrome_for(completion.status),
                           .reason = completion.reason,
                           .user_index = queue.user_index,
                           .number = queue.qpn.value(),
                           .wqe_counter = cookie.index,
                           .wqe_opcode = cookie.opcode});
}

void encode_responder_error(Cqe& bytes, const CqeQueue& queue,
                            const rdma::ReceiveCompletion& completion) {
  encode_error_cqe(
      bytes, {.queue = ErrorQueue::kReceives,
              .syndrome = syndrome_for(completion.status),
              .reason = completion.reason,
              .user_index = queue.user_index,
              .number = queue.qpn.value(),
              .wqe_counter = static_cast<std::uint16_t>(completion.cookie & kWqeCounterMask)});
}

}  // namespace softhca::connectx
