#include "connectx/qp/qp_send_queue.h"

#include <algorithm>
#include <array>
#include <utility>

namespace softhca::connectx {

using rdma::Fetch;

void QpSendQueue::set_rules(Qpn qpn, const QpContext& context) {
  forget_templates();
  rules_.is_signed = context.signs_wqes();
  rules_.type = QpContext::transport_type(context.view()).value_or(rdma::QpType::kRc);
  rules_.qpn = qpn;
}

void QpSendQueue::bind(bool is_datagram, bool atomics) {
  rules_.atomics = atomics;
  if (is_datagram) datagram_template_ = std::make_unique<DatagramWqeCache>();
  template_.forget();
}

void QpSendQueue::reset() {
  ring_.reset();
  stale_blocks_ = 0;
  has_reported_error_ = false;
}

/// Fetches a WQE of a QP that has no SendWqeCache template. It may be a datagram.
[[gnu::noinline]] Fetch QpSendQueue::fetch_datagram(MappedQueue& queue, WqeReader& reader,
                                                    std::uint32_t available,
                                                    rdma::SendRequest& request) {
  const auto* seen = datagram_template_.get();
  if (seen != nullptr && seen->size() != 0 && seen->basic_blocks() <= available) {
    const auto* at = ring_.entries_at_next(queue.memory, seen->size());
    if (at != nullptr && seen->decode_fast(at, ring_.consumed(), request)) {
      const auto blocks = seen->basic_blocks();
      ring_.consume(blocks);
      return blocks == available ? Fetch::kLastRequest : Fetch::kRequest;
    }
    request.sges.clear();
  }
  return fetch_other(queue, reader, available, request);
}

/// Slow path of fetch(), for a WQE that differs from the previous one.
[[gnu::noinline]] Fetch QpSendQueue::fetch_other(MappedQueue& queue, WqeReader& reader,
                                                 std::uint32_t available,
                                                 rdma::SendRequest& request) {
  const auto index = ring_.consumed();
  SendWqeControl control{};
  std::span<const std::byte> wqe;
  auto fault = reader.read_send(rules_.qpn, ring_, queue.memory, available, control, wqe);
  if (wqe.empty() && fault == WqeFault::kNone) return Fetch::kUnreadable;
  if (fault == WqeFault::kNone) fault = decode_send_wqe(wqe, control, index, rules_, request);
  request.cookie = SendCookie{.index = index,
                              .opcode = static_cast<std::uint8_t>(control.opcode),
                              .completion = control.completion}
                       .pack();
  reader.trace_send(rules_.qpn, index, control, fault);
  ring_.consume(std::min(control.basic_blocks(), available));
  if (fault == WqeFault::kNone) {
    if (datagram_template_ != nullptr) {
      datagram_template_->remember(wqe, control, rules_, request, reader.last_destination());
    } else {
      template_.remember(wqe, control, rules_, request);
    }
    return Fetch::kRequest;
  }
  request.fault = reason_of(fault);
  reader.note_fault(rules_.qpn, fault);
  return Fetch::kMalformed;
}

void QpSendQueue::restart(hca::DoorbellRecord& record) {
  ring_.look_again();
  stale_blocks_ = ring_.refresh(record).value_or(0);
  if (stale_blocks_ == 0) has_reported_error_ = false;
}

bool QpSendQueue::reports_failure(SendCookie cookie) {
  const bool is_first = !std::exchange(has_reported_error_, !cookie.ends_stale);
  return is_first || cookie.completion != WqeCompletion::ON_FIRST_ERROR;
}

Fetch QpSendQueue::flush_stale(MappedQueue& queue, rdma::SendRequest& request) {
  const auto before = ring_.consumed();
  if (flush(queue, request) == Fetch::kNothing) return Fetch::kUnreadable;
  const auto blocks = static_cast<std::uint16_t>(ring_.consumed() - before);
  stale_blocks_ -= std::min<std::uint32_t>(blocks, stale_blocks_);
  request.stale = true;
  if (stale_blocks_ == 0) {
    auto cookie = SendCookie::unpack(request.cookie);
    cookie.ends_stale = true;
    request.cookie = cookie.pack();
  }
  return Fetch::kRequest;
}

Fetch QpSendQueue::flush(MappedQueue& queue, rdma::SendRequest& request) {
  if (ring_.known() == 0 && !ring_.look(queue.record)) return Fetch::kNothing;
  const auto available = ring_.known();
  if (available == 0) return Fetch::kNothing;
  std::array<std::byte, kWqeUnit> bytes;
  if (!ring_.read(queue.memory, 0, bytes)) return Fetch::kNothing;
  const auto control = SendWqeControl::parse(bytes);
  request.cookie = SendCookie{.index = ring_.consumed(),
                              .opcode = static_cast<std::uint8_t>(control.opcode),
                              .completion = control.completion}
                       .pack();
  request.signaled = true;
  ring_.consume(std::min(control.basic_blocks(), available));
  return Fetch::kRequest;
}

}  // namespace softhca::connectx
