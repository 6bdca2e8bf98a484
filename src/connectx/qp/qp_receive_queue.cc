#include "connectx/qp/qp_receive_queue.h"

#include <array>

#include "connectx/queue/wqe_fault.h"
#include "util/copy_short.h"

namespace softhca::connectx {

using rdma::Fetch;

void QpReceiveQueue::set_rules(Qpn qpn, const QpContext& context) {
  qpn_ = qpn;
  is_signed_ = context.signs_wqes();
  is_plain_ = context.has_receive_queue() && !is_signed_;
}

Fetch QpReceiveQueue::fetch(MappedQueue& queue, WqeReader& reader, bool flushes,
                            rdma::ReceiveRequest& request) {
  const auto available = ring_.available(queue.record);
  if (!available) return flushes ? Fetch::kNothing : Fetch::kUnreadable;
  if (*available == 0) return Fetch::kNothing;
  request.cookie = ring_.consumed();
  if (!flushes) {
    const auto* at = ring_.at_next(queue.memory, ring_.stride());
    std::array<std::byte, kReceiveWqeMax> copy;
    const auto bytes = std::span(copy).first(ring_.stride());
    if (at != nullptr) {
      util::copy_header(copy.data(), at, ring_.stride());
    } else if (!ring_.read(queue.memory, 0, bytes)) {
      return Fetch::kUnreadable;
    } else {
      reader.trace_receive(qpn_, ring_.consumed());
    }
    if (is_signed_) return fetch_signed(bytes, request);
    decode_scatter_list(bytes, request.sges);
  }
  ring_.consume(1);
  return Fetch::kRequest;
}

/// @pre `wqe` is a copy of the next WQE
[[gnu::noinline]] Fetch QpReceiveQueue::fetch_signed(std::span<const std::byte> wqe,
                                                     rdma::ReceiveRequest& request) {
  const auto index = ring_.consumed();
  ring_.consume(1);
  if (!has_receive_signature(wqe, qpn_.value(), index)) {
    request.fault = reason_of(WqeFault::kReceiveSignature);
    return Fetch::kMalformed;
  }
  decode_scatter_list(wqe.subspan(kReceiveSignatureSize), request.sges);
  return Fetch::kRequest;
}

}  // namespace softhca::connectx
