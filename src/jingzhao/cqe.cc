#include "jingzhao/cqe.h"

#include "jingzhao/send_wqe.h"
#include "jingzhao/wqe_fault.h"
#include "spec/infiniband/transport.h"

namespace softhca::jingzhao {

using rdma::ReceiveOpcode;
using rdma::WorkStatus;
using spec::jingzhao::cqe;
using spec::jingzhao::error_cqe;
using spec::jingzhao::syndrome;
using spec::jingzhao::wqe_opcode;

namespace {

syndrome syndrome_of(WorkStatus status, rdma::Reason reason) {
  switch (status) {
    case WorkStatus::kLocalLength:
      return syndrome::LOCAL_LENGTH_ERR;
    case WorkStatus::kLocalProtection:
      return syndrome::LOCAL_PROT_ERR;
    case WorkStatus::kFlushed:
      return syndrome::WR_FLUSH_ERR;
    case WorkStatus::kMemoryWindowBind:
      return syndrome::MW_BIND_ERR;
    case WorkStatus::kBadResponse:
      return syndrome::BAD_RESP_ERR;
    case WorkStatus::kLocalAccess:
      return syndrome::LOCAL_ACCESS_ERR;
    case WorkStatus::kRemoteInvalidRequest:
      return syndrome::REMOTE_INVAL_REQ_ERR;
    case WorkStatus::kRemoteAccess:
      return syndrome::REMOTE_ACCESS_ERR;
    case WorkStatus::kRemoteOperation:
      return syndrome::REMOTE_OP_ERR;
    case WorkStatus::kTransportRetryExceeded:
      return syndrome::RETRY_EXC_ERR;
    case WorkStatus::kRnrRetryExceeded:
      return syndrome::RNR_RETRY_EXC_ERR;
    case WorkStatus::kSuccess:
    case WorkStatus::kLocalQpOperation:
      break;
  }
  // The transport reports every WQE that the decoder refused as a QP operation error.
  const bool length = reason == reason_of(WqeFault::kInlineTooLong) ||
                      reason == reason_of(WqeFault::kMessageTooLong);
  return length ? syndrome::LOCAL_LENGTH_ERR : syndrome::LOCAL_QP_OP_ERR;
}

void encode_error(Cqe out, WorkStatus status, rdma::Reason reason, wqe_opcode opcode) {
  const util::MutableView<error_cqe> error(out.bytes());
  error.set(error_cqe::syndrome, static_cast<std::uint32_t>(syndrome_of(status, reason)));
  error.set(error_cqe::vendor_err, static_cast<std::uint32_t>(reason));
  error.set(error_cqe::opcode, static_cast<std::uint32_t>(opcode));
}

/// The RC opcode of a single-packet message, or of the last packet of a longer one.
spec::infiniband::bth_opcode rc_opcode(const CqeQueue& queue,
                                       const rdma::ReceiveCompletion& completion) {
  using enum spec::infiniband::bth_opcode;
  // A packet that is not the last of its message has path MTU bytes.
  const bool one_packet =
      queue.type == rdma::QpType::kUd || completion.byte_count <= queue.path_mtu;
  switch (completion.opcode) {
    case ReceiveOpcode::kSend:
      return one_packet ? RC_SEND_ONLY : RC_SEND_LAST;
    case ReceiveOpcode::kSendWithImmediate:
      return one_packet ? RC_SEND_ONLY_WITH_IMMEDIATE : RC_SEND_LAST_WITH_IMMEDIATE;
    case ReceiveOpcode::kSendWithInvalidate:
      return one_packet ? RC_SEND_ONLY_WITH_INVALIDATE : RC_SEND_LAST_WITH_INVALIDATE;
    case ReceiveOpcode::kRdmaWriteWithImmediate:
      break;
  }
  return one_packet ? RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE : RC_RDMA_WRITE_LAST_WITH_IMMEDIATE;
}

/// "The opcode of the last packet that was received".
std::uint32_t receive_opcode(const CqeQueue& queue, const rdma::ReceiveCompletion& completion) {
  const auto service = rdma::service_rules(queue.type).packets;
  return static_cast<std::uint32_t>(
      spec::infiniband::opcode_of(service, rc_opcode(queue, completion)));
}

}  // namespace

void encode_bad_send_cqe(Cqe out, const CqeQueue& queue, const rdma::SendCompletion& completion) {
  const auto wqe = SendCookie::unpack(completion.cookie);
  out.set(cqe::my_qpn, queue.qpn.value());
  out.set(cqe::wqe, wqe.place * kUnit);
  out.set(cqe::is_send, 1);
  encode_error(out, completion.status, completion.reason, wqe_opcode::INVALID);
}

void encode_receive_cqe(Cqe out, const CqeQueue& queue, const rdma::ReceiveCompletion& completion) {
  out.set(cqe::my_qpn, queue.qpn.value());
  out.set(cqe::wqe, completion.cookie);
  if (completion.status != WorkStatus::kSuccess) {
    return encode_error(out, completion.status, completion.reason, wqe_opcode::RECEIVE_ERROR);
  }
  const auto source = completion.source_qpn.value();
  out.set(cqe::rqpn, source != 0 ? source : queue.remote_qpn.value());
  out.set(cqe::rlid, completion.source_lid.value());
  const bool immediate = completion.opcode == ReceiveOpcode::kSendWithImmediate ||
                         completion.opcode == ReceiveOpcode::kRdmaWriteWithImmediate;
  out.set(cqe::imm, immediate ? completion.immediate : 0);
  out.set(cqe::byte_cnt, completion.byte_count);
  out.set(cqe::opcode, receive_opcode(queue, completion));
}

}  // namespace softhca::jingzhao
