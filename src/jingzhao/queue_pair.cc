#include "jingzhao/queue_pair.h"

#include <algorithm>
#include <array>
#include <utility>

#include "jingzhao/cqe.h"
#include "jingzhao/queue_pairs.h"
#include "jingzhao/short_send_wqe.h"

namespace softhca::jingzhao {

using rdma::Fetch;
using rdma::QpState;
using spec::jingzhao::next_unit;
using State = spec::jingzhao::qp_state;

State to_document(QpState state) {
  switch (state) {
    case QpState::kReset:
      return State::RST;
    case QpState::kInit:
      return State::INIT;
    case QpState::kRtr:
      return State::RTR;
    case QpState::kRts:
      return State::RTS;
    case QpState::kSqError:
      return State::SQE;
    case QpState::kSqDrain:
      return State::SQD;
    case QpState::kError:
      break;
  }
  return State::ERR;
}

bool QueuePair::follow_fault_rules(const hca::FaultHook& faults) {
  if (faulty_ != nullptr) return faulty_->follow_rules();
  if (!faults) return false;
  const auto opcode_of = [](const rdma::SendRequest& request) {
    return to_string(spec::jingzhao::wqe_opcode(SendCookie::unpack(request.cookie).opcode));
  };
  faulty_ = std::make_unique<hca::FaultyQueues>(hca::FaultyQueues::Parts{
      .faults = faults, .qp = *rdma_qp_, .queues = *this, .opcode_of = opcode_of});
  return false;
}

// The context ------------------------------------------------------------------------------------

/// The context may have been changed in host memory, so sizes are bounded here.
void QueuePair::decode(util::View<Context> context, const Numbering& numbering,
                       std::uint64_t brought) {
  auto& keys = all_.keys();
  const rdma::Pd pd(context.get(Context::pd));
  const auto send_size = std::min(context.get(Context::snd_wqe_len), limits::kMaxQueue);
  sends_ = QueueMemory(keys, rdma::MKey(context.get(Context::snd_wqe_base_l)), pd,
                       send_size / kUnit * kUnit);
  receives_.decode(keys, context);
  cqns_.send = numbering.cqn(context.get(Context::cqn_snd));
  send_cq_ = all_.completion_queue(cqns_.send);
  cqns_.receive = numbering.cqn(context.get(Context::cqn_rcv));
  rules_.link = all_.link();
  rules_.qpn_mask = numbering.qpn_mask() & spec::infiniband::kQpnMask;
  rules_.message_max = std::uint64_t{1} << context.get(Context::msgmax);
  brought_ = brought;
}

void QueuePair::update(util::MutableView<Context> context) const {
  const auto& qp = *rdma_qp_;
  context.set(Context::state, static_cast<std::uint32_t>(to_document(qp.state())));
  context.set(Context::sq_wqe_counter, sends_fetched_);
  context.set(Context::rq_wqe_counter, receives_.consumed());
  const auto& rules = rdma::state_rules(qp.state());
  // Before RTR and RTS the PSNs are those that software set.
  if (rules.receives) context.set(Context::epsn, qp.next_receive_psn());
  if (rules.finishes) {
    context.set(Context::next_send_psn, qp.next_send_psn());
    context.set(Context::last_acked_psn, qp.last_acked_psn());
  }
}

// Sends ------------------------------------------------------------------------------------------

bool QueuePair::is_flushing() const {
  const auto& rules = rdma::state_rules(rdma_qp_->state());
  return rules.flushes_send;
}

/// Drops all posted sends. They would complete nowhere, and a chain may loop back to itself, so
/// that its flush would never end.
void QueuePair::lose_sends() {
  next_.reset();
  all_.doorbells().clear(doorbells);
}

Fetch QueuePair::lose(WqeFault fault) {
  lose_sends();
  if (is_flushing()) return Fetch::kNothing;
  all_.note(*this, "WQ_CATAS_ERROR", reason_of(fault));
  return Fetch::kUnreadable;
}

/// A WQE may wrap around to the beginning of the queue.
inline bool QueuePair::read_wqe(const SendWqe& wqe, std::span<std::byte> out) {
  const auto offset = std::uint64_t{wqe.place} * kUnit;
  if (offset + out.size() <= sends_.size()) [[likely]]
    return sends_.read(offset, out);
  const auto first = std::min<std::uint64_t>(out.size(), sends_.size() - offset);
  return sends_.read(offset, out.first(first)) &&
         (first == out.size() || sends_.read(0, out.subspan(first)));
}

inline void QueuePair::follow(util::View<next_unit> next, bool stale) {
  const auto units = next.get(next_unit::nds);
  if (units == 0) return next_.reset();
  next_ = SendWqe{.place = next.get(next_unit::nda),
                  .opcode = static_cast<std::uint8_t>(next.get(next_unit::nop)),
                  .units = static_cast<std::uint8_t>(units),
                  .fence = next.get(next_unit::f) != 0,
                  .stale = stale};
}

/// @pre the WQE begins within the queue
[[gnu::always_inline]] inline Fetch QueuePair::fetch(const SendWqe& wqe,
                                                     rdma::SendRequest& request) {
  const std::uint32_t size = wqe.units * kUnit;
  request.cookie = SendCookie{.place = wqe.place, .opcode = wqe.opcode}.pack();
  if (size > limits::kMaxWqe || size > sends_.size() || size == 0) {
    // The WQE is not read, so the chain ends here.
    next_.reset();
    request.signaled = true;
    request.stale = wqe.stale;
    request.fault = reason_of(size == 0 ? WqeFault::kTooShort : WqeFault::kTooLong);
    return Fetch::kMalformed;
  }
  if (const auto* const at = sends_.at(std::uint64_t{wqe.place} * kUnit, ShortSendWqe::kSize)) {
    const ShortSendWqe copy(at);
    if (copy.decode_fast(wqe, rules_, request)) {
      ++sends_fetched_;
      follow(copy.next(), wqe.stale);
      return next_ || !doorbells.empty() ? Fetch::kRequest : Fetch::kLastRequest;
    }
  }
  return fetch_slow(wqe, request);
}

Fetch QueuePair::fetch_send(rdma::SendRequest& request) {
  if (!next_ && doorbells.empty()) return Fetch::kNothing;
  const auto wqe = next_ ? *next_ : all_.doorbells().pop(doorbells);
  if (!all_.refresh(*this)) return lose(WqeFault::kContextGone);
  if (std::uint64_t{wqe.place} * kUnit >= sends_.size()) [[unlikely]]
    return fetch_beyond(wqe, request);
  return fetch(wqe, request);
}

/// A doorbell may count past the end of the queue, as the author's library does. A chain may not.
[[gnu::noinline]] Fetch QueuePair::fetch_beyond(SendWqe wqe, rdma::SendRequest& request) {
  if (next_ || sends_.size() == 0) return lose(WqeFault::kChainLeavesQueue);
  wqe.place %= static_cast<std::uint32_t>(sends_.size() / kUnit);
  return fetch(wqe, request);
}

/// Slow path of fetch_send(), for less frequent WQEs.
[[gnu::noinline]] Fetch QueuePair::fetch_slow(SendWqe wqe, rdma::SendRequest& request) {
  const std::uint32_t size = wqe.units * kUnit;
  std::array<std::byte, limits::kMaxWqe> copy;
  const auto bytes = std::span(copy).first(size);
  if (!read_wqe(wqe, bytes)) {
    lose_sends();
    return is_flushing() ? Fetch::kNothing : Fetch::kUnreadable;
  }
  ++sends_fetched_;
  follow(util::View<next_unit>(bytes), wqe.stale);
  if (const auto fault = decode_send_wqe(bytes, wqe, rules_, request); fault != WqeFault::kNone) {
    request.fault = reason_of(fault);
    return Fetch::kMalformed;
  }
  return next_ || !doorbells.empty() ? Fetch::kRequest : Fetch::kLastRequest;
}

void QueuePair::restart_send() {
  if (next_) next_->stale = true;
  all_.doorbells().mark_stale(doorbells);
}

// Receives ---------------------------------------------------------------------------------------

Fetch QueuePair::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn) {
  const bool flushes = rdma_qp_->flushes_receives();
  // Receives are not counted, so slots that are never cleared form an endless ring.
  if (flushes && receives_lost_) return Fetch::kNothing;
  if (flushes) all_.watch(*this);
  const auto gone = flushes ? Fetch::kNothing : Fetch::kUnreadable;
  if (!all_.refresh(*this)) return gone;
  if (!receives_.exists()) return Fetch::kNothing;
  std::array<std::byte, limits::kMaxWqe> copy;
  const auto bytes = std::span(copy).first(std::min(receives_.stride(), limits::kMaxWqe));
  if (!receives_.read(bytes)) return gone;
  if (!ReceiveRing::is_posted(bytes)) return Fetch::kNothing;
  request.cookie = receives_.place();
  receives_.consume();
  if (!flushes && !decode_scatter_list(bytes.subspan(kUnit), request.sges)) {
    request.fault = reason_of(WqeFault::kTooManyPieces);
    return Fetch::kMalformed;
  }
  return Fetch::kRequest;
}

// Completions ------------------------------------------------------------------------------------

void QueuePair::complete_send(const rdma::SendCompletion& completion) {
  const CqeQueue queue{.qpn = number_, .remote_qpn = rdma_qp_->attributes().remote_qpn};
  const auto fill = [&](Cqe cqe) { encode_good_send_cqe(cqe, queue, completion); };
  if (completion.status != rdma::WorkStatus::kSuccess || !send_cq_.write_fast(fill)) [[unlikely]]
    complete_send_slow(completion);
}

[[gnu::noinline]] void QueuePair::complete_send_slow(const rdma::SendCompletion& completion) {
  const CqeQueue queue{.qpn = number_, .remote_qpn = rdma_qp_->attributes().remote_qpn};
  const bool written = all_.write_cqe(*this, cqns_.send, [&](Cqe cqe) {
    if (completion.status == rdma::WorkStatus::kSuccess) {
      encode_good_send_cqe(cqe, queue, completion);
    } else {
      encode_bad_send_cqe(cqe, queue, completion);
    }
  });
  if (!written) lose_sends();
}

void QueuePair::complete_receive(const rdma::ReceiveCompletion& completion) {
  const auto& attributes = rdma_qp_->attributes();
  const CqeQueue queue{.qpn = number_,
                       .remote_qpn = attributes.remote_qpn,
                       .path_mtu = attributes.path_mtu,
                       .type = rules_.type};
  const auto fill = [&](Cqe cqe) { encode_receive_cqe(cqe, queue, completion); };
  if (!all_.write_cqe(*this, cqns_.receive, fill)) receives_lost_ = true;
}

void QueuePair::handle_event(rdma::QpEvent event, rdma::Reason reason) {
  all_.handle_event(*this, event, reason);
}

}  // namespace softhca::jingzhao
