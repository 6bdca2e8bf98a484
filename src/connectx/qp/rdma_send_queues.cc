// The send queues of QPs: fetches the next WQE as a request to execute or to flush.

#include <algorithm>
#include <cstring>
#include <utility>

#include "connectx/qp/rdma.h"

namespace softhca::connectx {

using rdma::Fetch;
using rdma::QpState;

namespace {

/// True if posted requests are flushed without being decoded.
bool flushes_sends(const QueuePair& qp) {
  const auto state = qp.rdma_qp().state();
  return state == QpState::kError || state == QpState::kSqError;
}

}  // namespace

/// Copies the next WQE, so that the guest cannot change it between check and use. If the memory is
/// not mapped or the size is wrong, `wqe` stays empty.
WqeFault Rdma::read_send_wqe(QueuePair& qp, std::uint32_t available, SendWqeControl& control,
                             std::span<const std::byte>& wqe) {
  const auto copy = std::span(send_wqe_);
  if (!parts_.blue_flame.empty()) [[unlikely]] {
    const auto size = parts_.blue_flame.take(qp.qpn(), qp.send_ring().consumed(), copy);
    control = SendWqeControl::parse(copy);
    if (size != 0 && control.basic_blocks() <= available) {
      wqe = copy.first(size);
      return WqeFault::kNone;
    }
  }
  const auto first = copy.first(kWqeBasicBlock);
  if (!qp.send_ring().read(qp.memory(), 0, first)) return WqeFault::kNone;
  control = SendWqeControl::parse(first);
  if (control.units == 0) return WqeFault::kSizeZero;
  if (control.basic_blocks() > available) return WqeFault::kPastPosted;
  const auto size = control.units * kWqeUnit;
  if (size > kWqeBasicBlock) {
    const auto rest = copy.subspan(kWqeBasicBlock, size - kWqeBasicBlock);
    if (!qp.send_ring().read(qp.memory(), 1, rest)) return WqeFault::kNone;
  }
  wqe = copy.first(size);
  return WqeFault::kNone;
}

Fetch Rdma::fetch_send(QueuePair& qp, rdma::SendRequest& request) {
  if (flushes_sends(qp)) return flush_send(qp, request);
  if (qp.stale_send_blocks != 0) return flush_stale_send(qp, request);
  auto& ring = qp.send_ring();
  if (!ring.look(qp.record())) return Fetch::kUnreadable;
  const auto available = ring.known();
  if (available == 0) return Fetch::kNothing;
  if (!qp.seen_send_wqe.is_known()) return fetch_datagram(qp, available, request);
  if (const auto* at = ring.at_next(qp.memory(), kWqeBasicBlock)) {
    const auto block = std::span(send_wqe_).first<kWqeBasicBlock>();
    std::memcpy(block.data(), at, kWqeBasicBlock);
    if (qp.seen_send_wqe.decode(block, ring.consumed(), request)) {
      ring.consume(1);
      return available == 1 ? Fetch::kLastRequest : Fetch::kRequest;
    }
    request.sges.clear();
  }
  return fetch_other_send(qp, available, request);
}

/// Fetches a WQE of a QP that has no SeenSendWqe template. It may be a datagram.
[[gnu::noinline]] Fetch Rdma::fetch_datagram(QueuePair& qp, std::uint32_t available,
                                             rdma::SendRequest& request) {
  auto& ring = qp.send_ring();
  const auto* seen = qp.seen_datagram_wqe.get();
  if (seen != nullptr && seen->size() != 0 && seen->basic_blocks() <= available) {
    const auto* at = ring.entries_at_next(qp.memory(), seen->size());
    if (at != nullptr && seen->decode(at, ring.consumed(), request)) {
      const auto blocks = seen->basic_blocks();
      ring.consume(blocks);
      return blocks == available ? Fetch::kLastRequest : Fetch::kRequest;
    }
    request.sges.clear();
  }
  return fetch_other_send(qp, available, request);
}

/// Copies a WQE that is not contiguous in memory, for example at the end of the ring. Null if it
/// cannot be read, or if it must be traced.
[[gnu::noinline]] const std::byte* Rdma::read_datagram_wqe(QueuePair& qp, std::size_t size) {
  const auto copy = std::span(send_wqe_).first(size);
  const bool read = parts_.trace == nullptr && qp.send_ring().read(qp.memory(), 0, copy);
  return read ? copy.data() : nullptr;
}

Fetch Rdma::fetch_short_datagram(QueuePair& qp, std::uint64_t destination, std::uint32_t bytes_max,
                                 rdma::ShortDatagram& datagram) {
  const auto& seen = *qp.seen_datagram_wqe;
  auto& ring = qp.send_ring();
  if (seen.destination() != destination || qp.stale_send_blocks != 0 || !ring.look(qp.record())) {
    return Fetch::kNothing;
  }
  const auto available = ring.known();
  if (seen.basic_blocks() > available) return Fetch::kNothing;
  const auto* at = ring.entries_at_next(qp.memory(), seen.size());
  if (at == nullptr) at = read_datagram_wqe(qp, seen.size());
  if (at == nullptr || !seen.decode(at, ring.consumed(), datagram) || datagram.length > bytes_max) {
    return Fetch::kNothing;
  }
  ring.consume(seen.basic_blocks());
  return seen.basic_blocks() == available ? Fetch::kLastRequest : Fetch::kRequest;
}

/// Slow path of fetch_send(), for a WQE that differs from the previous one.
[[gnu::noinline]] Fetch Rdma::fetch_other_send(QueuePair& qp, std::uint32_t available,
                                               rdma::SendRequest& request) {
  const auto index = qp.send_ring().consumed();
  SendWqeControl control{};
  std::span<const std::byte> wqe;
  auto fault = read_send_wqe(qp, available, control, wqe);
  if (wqe.empty() && fault == WqeFault::kNone) return Fetch::kUnreadable;
  if (fault == WqeFault::kNone) {
    fault = decode_send_wqe(wqe, control, index, qp.send_rules(), request);
  }
  request.cookie = SendCookie{.index = index,
                              .opcode = static_cast<std::uint8_t>(control.opcode),
                              .completion = control.completion}
                       .pack();
  if (parts_.trace != nullptr) {
    // With a trace, every WQE takes the slow path, because its ring cannot be accessed directly.
    parts_.trace->note(util::TraceStep::kSendWqe, to_string(control.opcode),
                       {{"qpn", qp.qpn().value()},
                        {"index", index},
                        {"bytes", control.units * kWqeUnit},
                        {"fault", static_cast<std::uint32_t>(fault)}});
  }
  qp.send_ring().consume(std::min(control.basic_blocks(), available));
  if (fault == WqeFault::kNone) {
    if (qp.seen_datagram_wqe != nullptr) {
      qp.seen_datagram_wqe->remember(wqe, control, qp.send_rules(), request, destinations_);
    } else {
      qp.seen_send_wqe.remember(wqe, control, qp.send_rules(), request);
    }
    return Fetch::kRequest;
  }
  request.fault = reason_of(fault);
  note(qp, "malformed send WQE", describe(fault), request.fault);
  return Fetch::kMalformed;
}

/// If the counter cannot be read or is wrong, the next fetch reports it.
void Rdma::restart_send(QueuePair& qp) {
  qp.send_ring().look_again();
  qp.stale_send_blocks = qp.send_ring().refresh(qp.record()).value_or(0);
  if (qp.stale_send_blocks == 0) qp.has_reported_error = false;
}

/// True if a failed request has a CQE. PRM Table 26, CE: "Generate CQE only on first WQE completion
/// with error (i.e if CQE on previous WQE completed in error, no CQE will be generated)". `cookie`:
/// that of the failed request.
bool Rdma::reports_failure(QueuePair& qp, SendCookie cookie) {
  const bool is_first = !std::exchange(qp.has_reported_error, !cookie.ends_stale);
  return is_first || cookie.completion != WqeCompletion::ON_FIRST_ERROR;
}

Fetch Rdma::flush_stale_send(QueuePair& qp, rdma::SendRequest& request) {
  const auto before = qp.send_ring().consumed();
  if (flush_send(qp, request) == Fetch::kNothing) return Fetch::kUnreadable;
  const auto blocks = static_cast<std::uint16_t>(qp.send_ring().consumed() - before);
  qp.stale_send_blocks -= std::min<std::uint32_t>(blocks, qp.stale_send_blocks);
  request.stale = true;
  if (qp.stale_send_blocks == 0) {
    auto cookie = SendCookie::unpack(request.cookie);
    cookie.ends_stale = true;
    request.cookie = cookie.pack();
  }
  return Fetch::kRequest;
}

/// Fetches a WQE to flush. Every posted WQE is flushed, also malformed ones and those without CE
/// (mlx5 driver interface 8.12). Only the size of the WQE is decoded, to find the next one.
Fetch Rdma::flush_send(QueuePair& qp, rdma::SendRequest& request) {
  auto& ring = qp.send_ring();
  if (ring.known() == 0 && !ring.look(qp.record())) return Fetch::kNothing;
  const auto available = ring.known();
  if (available == 0) return Fetch::kNothing;
  std::array<std::byte, kWqeUnit> bytes;
  if (!ring.read(qp.memory(), 0, bytes)) return Fetch::kNothing;
  const auto control = SendWqeControl::parse(bytes);
  request.cookie = SendCookie{.index = ring.consumed(),
                              .opcode = static_cast<std::uint8_t>(control.opcode),
                              .completion = control.completion}
                       .pack();
  request.signaled = true;
  ring.consume(std::min(control.basic_blocks(), available));
  return Fetch::kRequest;
}

}  // namespace softhca::connectx
