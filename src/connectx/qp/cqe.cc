#include "connectx/qp/cqe.h"

#include "connectx/command/command.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"
#include "wire/vlan.h"

namespace softhca::connectx {

namespace {

using rdma::ReceiveOpcode;
using rdma::WorkStatus;
using spec::connectx::cqe_opcode;
using spec::connectx::cqe_roce_l3_type;
using spec::connectx::cqe_syndrome;

constexpr std::uint32_t kWqeCounterMask = 0xFFFF;
/// cqe64_responder::grh: the 40 bytes in front of a datagram hold the header.
constexpr std::uint32_t kGrhInBuffer = 1;

template <class Enum>
constexpr std::uint32_t code(Enum value) {
  return static_cast<std::uint32_t>(value);
}

cqe_roce_l3_type l3_type(wire::NetworkHeader network) {
  switch (network) {
    case wire::NetworkHeader::kIpv4:
      return cqe_roce_l3_type::IPV4;
    case wire::NetworkHeader::kIpv6:
      return cqe_roce_l3_type::IPV6;
    case wire::NetworkHeader::kGrh:
    case wire::NetworkHeader::kLrh:
      break;
  }
  return cqe_roce_l3_type::GRH;
}

/// IBTA 11.6.2 to the codes of error CQEs.
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

struct ErrorCqe {
  cqe_opcode opcode;
  WorkStatus status;
  rdma::Reason reason;
  std::uint16_t wqe_counter;
  std::uint8_t wqe_opcode;
};

void encode_error(Cqe& bytes, const CqeQueue& queue, const ErrorCqe& error) {
  using Layout = spec::connectx::cqe_error;
  bytes.fill(std::byte{0});
  const util::MutableView<Layout> cqe(bytes);
  cqe.set(Layout::user_index, queue.user_index);
  cqe.set(Layout::vendor_error_syndrome, static_cast<std::uint32_t>(error.reason));
  cqe.set(Layout::syndrome, code(syndrome_for(error.status)));
  cqe.set(Layout::s_wqe_opcode, error.wqe_opcode);
  cqe.set(Layout::qpn, queue.qpn.value());
  cqe.set(Layout::wqe_counter, error.wqe_counter);
  cqe.set(Layout::opcode, code(error.opcode));
}

cqe_opcode responder_opcode(ReceiveOpcode opcode) {
  switch (opcode) {
    case ReceiveOpcode::kSend:
      return cqe_opcode::RESPONDER_SEND;
    case ReceiveOpcode::kSendWithImmediate:
      return cqe_opcode::RESPONDER_SEND_WITH_IMMEDIATE;
    case ReceiveOpcode::kSendWithInvalidate:
      return cqe_opcode::RESPONDER_SEND_WITH_INVALIDATE;
    case ReceiveOpcode::kRdmaWriteWithImmediate:
      break;
  }
  return cqe_opcode::RESPONDER_RDMA_WRITE_WITH_IMMEDIATE;
}

}  // namespace

void encode_requester_error(Cqe& bytes, const CqeQueue& queue,
                            const rdma::SendCompletion& completion) {
  const auto cookie = SendCookie::unpack(completion.cookie);
  encode_error(bytes, queue,
               {.opcode = cqe_opcode::REQUESTER_ERROR,
                .status = completion.status,
                .reason = completion.reason,
                .wqe_counter = cookie.index,
                .wqe_opcode = cookie.opcode});
}

void encode_responder_cqe(Cqe& bytes, const CqeQueue& queue,
                          const rdma::ReceiveCompletion& completion, std::uint64_t timestamp) {
  using Layout = spec::connectx::cqe64_responder;
  if (completion.status != WorkStatus::kSuccess) {
    encode_error(bytes, queue,
                 {.opcode = cqe_opcode::RESPONDER_ERROR,
                  .status = completion.status,
                  .reason = completion.reason,
                  .wqe_counter = static_cast<std::uint16_t>(completion.cookie & kWqeCounterMask),
                  .wqe_opcode = 0});
    return;
  }
  Cqe made{};
  const util::MutableView<Layout> cqe(made);
  const bool has_immediate = completion.opcode != ReceiveOpcode::kSend;
  // A datagram's source is its DETH; connected QPs know their peer.
  if (queue.is_datagram) {
    cqe.set(Layout::grh, kGrhInBuffer);
    cqe.set(Layout::rqpn, completion.source_qpn.value());
  }
  cqe.set(Layout::sl_l3_type, code(l3_type(completion.network)));
  if (completion.vlan_tci) {
    util::Struct<wire::VlanLayout> tag;
    tag.set(wire::VlanLayout::tci, *completion.vlan_tci);
    cqe.set(Layout::cv, 1);
    cqe.set(Layout::up, tag.get(wire::VlanLayout::pcp));
    cqe.set(Layout::cfi, tag.get(wire::VlanLayout::dei));
    cqe.set(Layout::vid, tag.get(wire::VlanLayout::vid));
  }
  cqe.set(Layout::srqn_user_index, queue.user_index);
  if (has_immediate) {
    cqe.set(Layout::imm_inval_pkey, completion.immediate);
  } else if (queue.is_gsi) {
    cqe.set(Layout::imm_inval_pkey, completion.pkey);
  }
  cqe.set(Layout::byte_cnt, completion.byte_count);
  cqe.set(Layout::timestamp, timestamp);
  cqe.set(Layout::qpn, queue.qpn.value());
  cqe.set(Layout::wqe_counter, completion.cookie & kWqeCounterMask);
  cqe.set(Layout::opcode, code(responder_opcode(completion.opcode)));
  cqe.set(Layout::se, completion.solicited ? 1 : 0);
  bytes = made;
}

}  // namespace softhca::connectx
