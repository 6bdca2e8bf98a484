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
