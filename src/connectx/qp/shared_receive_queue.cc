#include "connectx/qp/shared_receive_queue.h"

#include <utility>

#include "connectx/queue/receive_wqe.h"
#include "connectx/queue/wqe_fault.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

using rdma::Fetch;
using spec::connectx::srq_next_segment;

SharedReceiveQueue::SharedReceiveQueue(Srqn number, Attributes attributes)
    : number_(number),
      attributes_(std::move(attributes)),
      chain_(attributes_.log_size, attributes_.log_stride, kReceiveCounter) {}

Fetch SharedReceiveQueue::fetch(rdma::ReceiveRequest& request) {
  if (failed_) return Fetch::kUnreadable;
  const auto available = chain_.available(attributes_.queue.record);
  if (!available) return fail("its doorbell record is gone, or its counter is past the queue");
  if (*available == 0) return Fetch::kNothing;
  std::array<std::byte, kReceiveWqeMax> wqe;
  const auto bytes = std::span(wqe).first(chain_.stride());
  if (!chain_.read(attributes_.queue.memory, bytes)) return fail("its memory is gone");
  std::uint32_t next = 0;
  if (attributes_.cyclic) {
    next = (chain_.next() + 1) & (chain_.size() - 1);
    request.cookie = chain_.consumed();
  } else {
    // The link must be read now. Software wrote it before it posted this WQE, and may overwrite it
    // when this WQE has completed.
    next = util::View<srq_next_segment>(bytes).get(srq_next_segment::next_wqe_index);
    if (next >= chain_.size()) return fail("next_wqe_index is past the queue (PRM Table 43)");
    request.cookie = chain_.next();
  }
  chain_.advance(next);
  // The signature covers "as well as the SRQ number and WQE index" (PRM Table 43).
  if (attributes_.wq_signature &&
      !has_receive_signature(bytes, number_.value(), static_cast<std::uint16_t>(request.cookie))) {
    request.fault = reason_of(WqeFault::kReceiveSignature);
    return Fetch::kMalformed;
  }
  decode_scatter_list(list_of(bytes), request.sges);
  return Fetch::kRequest;
}

std::span<const std::byte> SharedReceiveQueue::list_of(std::span<const std::byte> wqe) const {
  static_assert(srq_next_segment::kSize == kReceiveSignatureSize);
  // Link and signature share one segment. PRM Table 65 on its presence: "cyclic receive wqe always
  // includes the 16 byte of ctrl (signature field)", or "only when wq_signature==1".
  const bool alone = attributes_.cyclic && attributes_.bare && !attributes_.wq_signature;
  return alone ? wqe : wqe.subspan(kReceiveSignatureSize);
}

bool SharedReceiveQueue::take_limit_event() {
  if (attributes_.limit == 0 || failed_) return false;
  if (chain_.known() >= attributes_.limit) return false;
  const auto available = chain_.refresh(attributes_.queue.record);
  if (!available || *available >= attributes_.limit) return false;
  attributes_.limit = 0;
  return true;
}

Fetch SharedReceiveQueue::fail(std::string_view reason) {
  failed_ = true;
  failure_ = reason;
  return Fetch::kUnreadable;
}

}  // namespace softhca::connectx
