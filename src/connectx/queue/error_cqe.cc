#include "connectx/queue/error_cqe.h"

#include <algorithm>

#include "spec/connectx/cqe.h"
#include "util/field.h"

namespace softhca::connectx {

spec::connectx::cqe_syndrome syndrome_for(rdma::WorkStatus status) {
  using rdma::WorkStatus;
  using spec::connectx::cqe_syndrome;
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

void encode_error_cqe(std::span<std::byte, 64> cqe, const ErrorCqe& error) {
  using Layout = spec::connectx::cqe_error;
  using spec::connectx::cqe_opcode;
  std::ranges::fill(cqe, std::byte{0});
  const util::MutableView<Layout> out(cqe);
  out.set(Layout::user_index, error.user_index);
  out.set(Layout::hw_error_syndrome, static_cast<std::uint32_t>(error.reason));
  out.set(Layout::vendor_error_syndrome, vendor_error(error.queue, error.syndrome, error.reason));
  out.set(Layout::syndrome, static_cast<std::uint32_t>(error.syndrome));
  out.set(Layout::s_wqe_opcode, error.wqe_opcode);
  out.set(Layout::qpn, error.number);
  out.set(Layout::wqe_counter, error.wqe_counter);
  const auto opcode = error.queue == ErrorQueue::kReceives ? cqe_opcode::RESPONDER_ERROR
                                                           : cqe_opcode::REQUESTER_ERROR;
  out.set(Layout::opcode, static_cast<std::uint32_t>(opcode));
}

}  // namespace softhca::connectx
