#include "connectx/ethernet/send_queue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "connectx/event/event_queue.h"
#include "connectx/port/network_port.h"
#include "connectx/queue/error_cqe.h"
#include "spec/connectx/cqe.h"

namespace softhca::connectx {

namespace {

using spec::connectx::cqe_syndrome;
using spec::connectx::event_type;
using spec::connectx::min_wqe_inline_mode;
using spec::connectx::sq_context;
using spec::connectx::wqe_ctrl_segment;
using spec::connectx::wqe_opcode;

/// Steps of a WQE with one frame: one to start the WQE, and one to send the frame.
constexpr unsigned kStepsOfFrame = 2;

}  // namespace

SendQueue::SendQueue(Sqn sqn, util::View<sq_context> context, WorkQueue wq, const Parts& parts)
    : sqn_(sqn),
      context_(context),
      wq_(std::move(wq)),
      parts_(parts),
      cq_use_(parts.cq.use()),
      tis_use_(parts.tis == nullptr ? hca::Use() : parts.tis->use()),
      flush_in_error_(context.get(sq_context::flush_in_error_en) != 0),
      rules_{.user = {wq_.pd, Qpn(sqn.value()), context.get(sq_context::rlkey) != 0},
             .min_inline_mode = min_wqe_inline_mode(context.get(sq_context::min_wqe_inline_mode)),
             .multi_packet_sends =
                 parts.multi_packet_sends && context.get(sq_context::allow_multi_pkt_send_wqe) != 0,
             .tis = parts.tis},
      completions_(sqn, context.get(sq_context::user_index), parts.cq, parts.port) {
  follow_fault_rules();
}

void SendQueue::follow_fault_rules() {
  faults_.any = static_cast<bool>(parts_.event_queues.faults());
  forget_template();
}

bool SendQueue::is_stalled() {
  const auto& faults = parts_.event_queues.faults();
  const auto passed = std::exchange(faults_.stall, 0);
  if (!faults || state_ != State::RDY) return false;
  if (passed != 0) {
    if (!faults.holds(passed)) return false;
    faults_.stall = passed;
    return true;
  }
  const auto opcode = to_string(SendWqeControl::parse(wqe_).opcode);
  hca::FaultEvent event{
      .action = hca::FaultAction::kStallSend, .qp = sqn_.value(), .opcode = opcode};
  if (const auto* rule = faults.take(event)) {
    faults_.stall = rule->id;
    return true;
  }
  event.action = hca::FaultAction::kFailRequest;
  if (const auto* rule = faults.take(event)) faults_.injected = rule->rule.end;
  return false;
}

void SendQueue::set_state(State state) {
  if (state == State::RST) {
    // The record must not be read before the next doorbell, as software may zero it after the
    // command.
    wq_.ring.reset();
    executing_ = false;
    rung_ = false;
    faults_.stall = 0;
    completions_.reset();
    drop_held();
  }
  if (state == State::ERR && state_ != State::ERR) {
    // If some frames of the current WQE are already sent, it is flushed like the WQEs after it.
    executing_ = false;
    rung_ = true;
  }
  // On a shared doorbell page, only the record shows that WQEs are posted. The counter that an
  // earlier use of the queue left there must not count.
  if (state == State::RDY && state_ == State::RST && listener_) {
    wq_.ring.disregard(wq_.queue.record);
  }
  state_ = state;
}

void SendQueue::drop_held() { parts_.cq.drop_held(Qpn(sqn_.value())); }

void SendQueue::write_context(util::MutableView<sq_context> out) {
  context_.copy_to(out);
  out.set(sq_context::state, static_cast<std::uint32_t>(state_));
  const auto wq = out.sub(sq_context::wq);
  const auto consumed = wq_.ring.consumed();
  const auto posted = wq_.queue.record.read(kSendCounter);
  wq.set(spec::connectx::wq::hw_counter, consumed);
  wq.set(spec::connectx::wq::sw_counter, static_cast<std::uint16_t>(posted.value_or(consumed)));
}

[[gnu::always_inline]] inline bool SendQueue::execute_fast(EthTransmitter& transmitter) {
  if (state_ != State::RDY || !template_.wqe.is_set()) return false;
  if (wq_.ring.known() == 0 && wq_.available().value_or(0) == 0) return false;
  const auto* at = wq_.ring.at_next(wq_.queue.memory, kWqeBasicBlock);
  if (at == nullptr) return false;
  const auto block = std::span(wqe_).first<kWqeBasicBlock>();
  std::memcpy(block.data(), at, kWqeBasicBlock);
  const util::View<wqe_ctrl_segment> control(block);
  if (control.get(wqe_ctrl_segment::wqe_index) != wq_.ring.consumed()) return false;
  if (!transmitter.send_next_fast(block, template_, rules_, last_frame_)) return false;
  if (is_signaled(SendWqeControl::completion_of(control))) {
    current_.control = SendWqeControl::parse(block);
    current_.control.index = wq_.ring.consumed();
    finish(std::nullopt);
  }
  wq_.ring.consume(1);
  return true;
}

[[gnu::always_inline]] inline bool SendQueue::execute(EthTransmitter& transmitter,
                                                      unsigned& budget) {
  if (executing_) {
    budget -= step(transmitter, budget);
    return !transmitter.over_budget();
  }
  --budget;
  if (!start_next()) rung_ = false;
  return true;
}

void SendQueue::run(EthTransmitter& transmitter, util::Time now, unsigned& budget) {
  completions_.set_time(now);
  while (rung_ && budget != 0) {
    if (!executing_ && budget >= kStepsOfFrame && execute_fast(transmitter)) {
      budget -= kStepsOfFrame;
    } else if (!execute(transmitter, budget)) {
      return;
    }
  }
}

bool SendQueue::start_next() {
  if (state_ == State::ERR && !flush_in_error_) return false;
  const auto available = wq_.available();
  if (!available) {
    fail_queue("doorbell record unreadable, or its counter further than the queue is long");
    return false;
  }
  if (*available == 0) return false;
  if (!parts_.blue_flame.empty()) [[unlikely]] {
    const auto size = parts_.blue_flame.take(Qpn(sqn_.value()), wq_.ring.consumed(), wqe_);
    if (size != 0) {
      if (faults_.any && is_stalled()) return false;
      start(*available, size);
      return true;
    }
  }
  const auto block = std::span(wqe_).first(kWqeBasicBlock);
  if (const auto* at = wq_.ring.at_next(wq_.queue.memory, kWqeBasicBlock)) {
    std::memcpy(block.data(), at, kWqeBasicBlock);
  } else if (!wq_.read(0, block)) {
    fail_queue("the memory of the queue is not mapped");
    return false;
  }
  if (faults_.any && is_stalled()) return false;
  start(*available, kWqeBasicBlock);
  return true;
}

void SendQueue::start(std::uint32_t available, std::size_t read) {
  auto& control = current_.control;
  control = SendWqeControl::parse(wqe_);
  // The CQE must have the counter by which software identifies the WQE, whatever is in the WQE.
  const auto index = std::exchange(control.index, wq_.ring.consumed());
  const auto blocks = std::min(control.basic_blocks(), available);
  const std::size_t size = control.units * kWqeUnit;
  const bool complete_wqe = size != 0 && control.basic_blocks() <= available;
  const bool readable = size <= read || !complete_wqe ||
                        wq_.read(1, std::span(wqe_).subspan(kWqeBasicBlock, size - kWqeBasicBlock));
  wq_.ring.consume(blocks);
  if (auto* trace = parts_.event_queues.trace()) {
    trace->note(util::TraceStep::kSendWqe, to_string(control.opcode),
                {{"sqn", sqn_.value()}, {"index", control.index}, {"bytes", size}});
  }
  if (state_ == State::ERR) {
    return finish(EthWqeFault{cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed});
  }
  if (const auto injected = std::exchange(faults_.injected, std::nullopt)) {
    return fail(EthWqeFault{syndrome_for(*injected), rdma::Reason::kFaultRule});
  }
  if (size == 0) return fail(WqeFault::kSizeZero);
  if (!complete_wqe) return fail(WqeFault::kPastPosted);
  if (!readable) return fail_queue("the memory of the queue is not mapped");
  if (wq_.is_signed && !SendWqeControl::is_signed(std::span(wqe_).first(size))) {
    return fail(WqeFault::kSignature);
  }
  if (index != control.index) return fail(WqeFault::kWrongIndex);
  if (control.qpn != Qpn(sqn_.value())) return fail(WqeFault::kWrongQpn);
  switch (control.opcode) {
    case wqe_opcode::NOP:
      return complete();
    case wqe_opcode::SEND:
    case wqe_opcode::LSO:
      break;
    default:
      return fail(WqeFault::kNotAnEthernetOpcode);
  }
  if (parts_.tis == nullptr) return fail(WqeFault::kNoTis);
  if (const auto decoded =
          current_.eth.decode(std::span(wqe_).first(size), rules_.multi_packet_sends);
      !decoded) {
    return fail(decoded.error());
  }
  if (!wq_.is_signed && !faults_.any) {
    template_.wqe.remember(std::span(wqe_).first(size), current_.eth);
  }
  current_.transmission.start(last_frame_);
  executing_ = true;
}

unsigned SendQueue::step(EthTransmitter& transmitter, unsigned packets_max) {
  const auto sent = transmitter.send_next(current_.eth, rules_, packets_max, current_.transmission);
  const auto packets = current_.transmission.packets;
  last_frame_ = current_.transmission.last_frame;
  template_.headers = current_.transmission.headers;
  if (!sent) {
    executing_ = false;
    fail(sent.error());
  } else if (current_.transmission.finished) {
    executing_ = false;
    complete();
  }
  return packets;
}

void SendQueue::complete() {
  if (is_signaled(current_.control.completion)) finish(std::nullopt);
}

void SendQueue::finish(const std::optional<EthWqeFault>& fault) {
  if (!completions_.finish(last_frame_, current_.control, fault)) fail_with_cq();
}

void SendQueue::report_released(util::Time now) {
  completions_.set_time(now);
  if (!completions_.report_released()) fail_with_cq();
}

void SendQueue::fail(WqeFault fault) { fail(bad_wqe(fault).value()); }

void SendQueue::fail(const EthWqeFault& fault) {
  const auto meaning = *explain_reason(static_cast<std::uint32_t>(fault.reason));
  parts_.notes.info("SQ {:#x}: {} ({})", sqn_.value(), meaning.text, meaning.section);
  state_ = State::ERR;
  finish(fault);
}

/// PRM 7.12.1: a CQ overrun moves its queues to the error state. No CQE can report that.
void SendQueue::fail_with_cq() {
  state_ = State::ERR;
  executing_ = false;
  rung_ = false;
}

void SendQueue::fail_queue(std::string_view reason) {
  if (state_ != State::ERR) {
    parts_.notes.info("SQ {:#x}: {}", sqn_.value(), reason);
    parts_.event_queues.post(event_type::LOCAL_WQ_CATASTROPHIC_ERROR, 0,
                             EventQueues::queue_data(sqn_));
  }
  state_ = State::ERR;
  executing_ = false;
  rung_ = false;
}

}  // namespace softhca::connectx
