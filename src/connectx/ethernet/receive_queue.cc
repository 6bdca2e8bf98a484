#include "connectx/ethernet/receive_queue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/event/event_queue.h"
#include "connectx/port/network_port.h"
#include "connectx/queue/error_cqe.h"
#include "connectx/queue/receive_wqe.h"
#include "connectx/queue/wqe_fault.h"
#include "ethernet/frame_copy.h"
#include "rdma/scatter_gather.h"
#include "spec/connectx/wqe.h"
#include "wire/checksum.h"
#include "wire/vlan.h"

namespace softhca::connectx {

namespace {

using rdma::Reason;
using ReceiveSegment = spec::connectx::receive_data_segment;
using spec::connectx::cqe64;
using spec::connectx::cqe_error;
using spec::connectx::cqe_opcode;
using spec::connectx::cqe_syndrome;
using spec::connectx::end_padding_mode;
using spec::connectx::event_type;
using spec::connectx::rq_context;
using spec::connectx::wq;

/// Bytes of a cache line. It would be 128 with HCA_CAP.cache_line_128byte, which the device lacks.
constexpr std::size_t kCacheLine = 64;

/// Work for the pieces of keys behind which a frame and its copies are written, unless a part of
/// kCostlyPart bytes exceeds it: more than a frame of 4 KiB in pieces of one byte costs.
constexpr std::int64_t kFrameWorkMax = 900'000;
constexpr std::size_t kCostlyPart = 1024;

/// Number of zeros that fill the cache line in which the first `bytes` of the list end. PRM 3.3.10:
/// "padding does not go beyond the receive WQE scatter entry length".
std::size_t padding_behind(std::span<const rdma::Sge> sges, std::uint64_t bytes) {
  for (const auto& sge : sges) {
    if (bytes > sge.length) {
      bytes -= sge.length;
      continue;
    }
    // If bytes is 0, the frame ends in an earlier entry, and this one is not padded.
    const auto beyond = bytes == 0 ? 0 : (sge.address + bytes) % kCacheLine;
    return beyond == 0 ? 0 : std::min<std::size_t>(kCacheLine - beyond, sge.length - bytes);
  }
  return 0;
}

}  // namespace

ReceiveQueue::ReceiveQueue(Rqn rqn, util::View<rq_context> context, WorkQueue wq,
                           const Parts& parts)
    : rqn_(rqn),
      context_(context),
      wq_(std::move(wq)),
      user_{wq_.pd, Qpn(rqn.value()), context.get(rq_context::rlkey) != 0},
      parts_(parts),
      cq_use_(parts.cq.use()),
      user_index_(context.get(rq_context::user_index)),
      counter_set_(context.get(rq_context::counter_set_id)),
      vlan_strip_(context.get(rq_context::vlan_strip_disable) == 0),
      pad_end_(end_padding_mode(context.get(rq_context::wq).get(wq::end_padding_mode)) ==
               end_padding_mode::END_PAD_ALIGN),
      plain_(!pad_end_ && !wq_.is_signed),
      flush_in_error_(context.get(rq_context::flush_in_error_en) != 0) {}

void ReceiveQueue::set_state(State state) {
  if (state == State::RST) {
    wq_.ring.reset();
    dropped_ = 0;
    dead_ = false;
    drop_held();
  }
  state_ = state;
}

void ReceiveQueue::drop_held() { parts_.cq.drop_held(Qpn(rqn_.value()), user_index_); }

void ReceiveQueue::write_context(util::MutableView<rq_context> out) {
  context_.copy_to(out);
  out.set(rq_context::state, static_cast<std::uint32_t>(state_));
  out.set(rq_context::vlan_strip_disable, vlan_strip_ ? 0 : 1);
  out.set(rq_context::counter_set_id, counter_set_.value());
  const auto wq = out.sub(rq_context::wq);
  const auto consumed = wq_.ring.consumed();
  const auto posted = wq_.queue.record.read(0);
  wq.set(spec::connectx::wq::hw_counter, consumed);
  wq.set(spec::connectx::wq::sw_counter, static_cast<std::uint16_t>(posted.value_or(consumed)));
}

bool ReceiveQueue::read_wqe(std::span<std::byte> wqe) {
  const auto* at = wq_.ring.at_next(wq_.queue.memory, static_cast<std::uint32_t>(wqe.size()));
  if (at == nullptr) return wq_.read(0, wqe);
  std::memcpy(wqe.data(), at, wqe.size());
  return true;
}

inline void ReceiveQueue::post(std::span<std::byte, 64> cqe, bool solicited) {
  if (parts_.cq.write(cqe, solicited)) return;
  // PRM 7.12.1: a CQ overrun moves its queues to the error state.
  state_ = State::ERR;
  dead_ = true;
}

[[gnu::always_inline]] inline void ReceiveQueue::complete(const ReceivedFrame& frame,
                                                          util::MutableView<cqe64> cqe,
                                                          std::size_t bytes, bool stripped,
                                                          std::uint16_t counter) {
  cqe.set(cqe64::byte_cnt, static_cast<std::uint32_t>(bytes));
  cqe.set(cqe64::wqe_counter, counter);
  if (dropped_ != 0) cqe.set(cqe64::rx_drop_counter, std::exchange(dropped_, 0));
  if (!stripped && frame.tag_sum != 0) {
    wire::ChecksumSum sum;
    sum.add_u16(static_cast<std::uint16_t>(cqe.get(cqe64::checksum)));
    sum.add_u16(frame.tag_sum);
    cqe.set(cqe64::checksum, sum.value());
  }
  post(cqe.bytes().first<64>(), false);
}

[[gnu::always_inline]] inline bool ReceiveQueue::scatter_fast(const wire::Frame& frame,
                                                              std::size_t size) {
  const auto* const at = wq_.ring.at_next(wq_.queue.memory, ReceiveSegment::kSize);
  if (at == nullptr) return false;
  std::array<std::byte, ReceiveSegment::kSize> bytes;
  std::memcpy(bytes.data(), at, bytes.size());
  const util::View<ReceiveSegment> segment(bytes);
  // This also rejects a length of 0, which has special meanings.
  if (size > segment.get(ReceiveSegment::byte_count)) return false;
  const rdma::MKey key(segment.get(ReceiveSegment::l_key));
  const auto address = segment.get(ReceiveSegment::local_address);
  auto* const to =
      key_cache_.find(parts_.keys, key, [this] { return user_; }, address, size, rdma::kLocalWrite);
  if (to == nullptr) return false;
  ethernet::copy_frame(frame, to);
  return true;
}

void ReceiveQueue::receive(const ReceivedFrame& frame, util::MutableView<cqe64> cqe,
                           ScatterScratch& scratch) {
  if (state_ != State::RDY) return;  // PRM Table 57: "Incoming messages are silently dropped"
  if (wq_.ring.known() == 0 && !look_for_wqe(frame)) return;
  const bool strip = vlan_strip_ && frame.vlan_tci.has_value();
  const auto size = frame.frame->size();
  if (strip || !plain_ || !scatter_fast(*frame.frame, size)) {
    return receive_slow(frame, cqe, scratch);
  }
  const auto counter = wq_.ring.consumed();
  wq_.ring.consume(1);
  complete(frame, cqe, size, false, counter);
}

bool ReceiveQueue::look_for_wqe(const ReceivedFrame& frame) {
  const auto available = wq_.available();
  if (available && *available != 0) return true;
  if (available) {
    drop_for_want_of_wqe(frame);
  } else {
    fail_queue("doorbell record unreadable, or its counter further than the queue is long");
  }
  return false;
}

/// Slow path of receive(). @pre a WQE is known to be posted
void ReceiveQueue::receive_slow(const ReceivedFrame& frame, util::MutableView<cqe64> cqe,
                                ScatterScratch& scratch) {
  const auto counter = wq_.ring.consumed();
  const bool strip = vlan_strip_ && frame.vlan_tci.has_value();
  auto wqe = std::span(scratch.wqe).first(wq_.ring.stride());
  if (!read_wqe(wqe)) return fail_queue("the memory of the queue is not mapped");
  if (auto* trace = parts_.event_queues.trace()) {
    trace->note(util::TraceStep::kReceiveWqe, {}, {{"rqn", rqn_.value()}, {"index", counter}});
  }
  scratch.sges.clear();
  if (wq_.is_signed) {
    if (!has_receive_signature(wqe, rqn_.value(), counter)) {
      wq_.ring.consume(1);
      state_ = State::ERR;
      return write_error(counter, cqe_syndrome::LOCAL_QP_OPERATION_ERROR,
                         reason_of(WqeFault::kReceiveSignature));
    }
    wqe = wqe.subspan(kReceiveSignatureSize);
  }
  decode_scatter_list(wqe, scratch.sges);

  const std::size_t skip = strip ? ReceivedFrame::kVlanSize : 0;
  const auto bytes = frame.frame->size() - skip;
  const bool fits = bytes <= rdma::total_length(scratch.sges);
  const auto reason = fits ? scatter(*frame.frame, skip, scratch.sges) : Reason::kReceiveTooShort;
  if (reason == Reason::kTooManyPieces) {
    // As a NIC with a full buffer does. The WQE serves the next frame.
    return count_discard(frame);
  }
  wq_.ring.consume(1);
  if (!fits) {
    // The WQE is consumed, but the queue continues: drivers treat this error as one of a single
    // frame.
    return write_error(counter, cqe_syndrome::LOCAL_LENGTH_ERROR, reason);
  }
  if (reason != Reason::kNone) {
    const auto& meaning = rdma::describe(reason);
    parts_.notes.info("RQ {:#x}: {} ({})", rqn_.value(), meaning.text, meaning.section);
    state_ = State::ERR;
    return write_error(counter, cqe_syndrome::LOCAL_PROTECTION_ERROR, reason);
  }
  complete(frame, cqe, bytes, strip, counter);
}

void ReceiveQueue::count_discard(const ReceivedFrame& frame) {
  if (!frame.is_copy) parts_.port.count_discard(priority_of(*frame.frame));
}

void ReceiveQueue::drop_for_want_of_wqe(const ReceivedFrame& frame) {
  if (dropped_ != 0xFF) ++dropped_;
  count_discard(frame);
  if (auto* counters = parts_.resources.q_counter(counter_set_)) ++counters->out_of_buffer;
}

Reason ReceiveQueue::scatter(const wire::Frame& frame, std::size_t skip,
                             std::span<const rdma::Sge> sges) {
  auto& keys = parts_.keys;
  auto reason = write(frame, skip, sges);
  if (reason == Reason::kNone && pad_end_) {
    static constexpr std::array<std::byte, kCacheLine> kZeros{};
    const auto bytes = frame.size() - skip;
    const auto zeros = std::span(kZeros).first(padding_behind(sges, bytes));
    reason = rdma::scatter(keys, user_, sges, bytes, zeros);
  }
  if (pcie::RemoteAccesses::any()) keys.work().charge(pcie::RemoteAccesses::take_work());
  return reason;
}

Reason ReceiveQueue::write(const wire::Frame& frame, std::size_t skip,
                           std::span<const rdma::Sge> sges) {
  const auto size = frame.size();
  if (skip != 0) {
    constexpr auto kAddresses = ReceivedFrame::kVlanOffset;
    const auto reason = write_part(frame, 0, kAddresses, sges, 0);
    if (reason != Reason::kNone) return reason;
    const auto rest = kAddresses + skip;
    return write_part(frame, rest, size - rest, sges, kAddresses);
  }
  return write_part(frame, 0, size, sges, 0);
}

/// Copies `size` bytes from `from` on to `offset` of the list. If their keys may be too costly, it
/// copies in parts, and stops when the work for a frame and its copies is spent.
Reason ReceiveQueue::write_part(const wire::Frame& frame, std::size_t from, std::size_t size,
                                std::span<const rdma::Sge> sges, std::uint64_t offset) {
  auto& keys = parts_.keys;
  const auto may_cost = static_cast<std::int64_t>(size) * rdma::kByteWorkMax;
  if (!keys.has_charged() || keys.work().pending() + may_cost <= kFrameWorkMax) {
    return rdma::scatter(keys, user_, sges, offset, frame, from, size);
  }
  for (std::size_t done = 0; done != size;) {
    if (keys.work().pending() > kFrameWorkMax) return Reason::kTooManyPieces;
    const auto n = std::min(size - done, kCostlyPart);
    const auto reason = rdma::scatter(keys, user_, sges, offset + done, frame, from + done, n);
    if (reason != Reason::kNone) return reason;
    done += n;
  }
  return Reason::kNone;
}

void ReceiveQueue::describe_way(util::MutableView<cqe64> cqe, const ReceivedFrame& frame) const {
  cqe.set(cqe64::opcode, static_cast<std::uint32_t>(cqe_opcode::RESPONDER_SEND));
  cqe.set(cqe64::srqn_user_index, user_index_);
  cqe.set(cqe64::flow_tag, frame.flow_tag);
  cqe.set(cqe64::rx_hash_result, frame.rss_hash);
  cqe.set(cqe64::rx_hash_type, frame.rss_hash_type);
  if (!vlan_strip_ || !frame.vlan_tci) return;
  cqe.set(cqe64::cv, 1);
  const wire::Vlan tag{*frame.vlan_tci};
  cqe.set(cqe64::up, tag.pcp());
  cqe.set(cqe64::cfi, tag.dei());
  cqe.set(cqe64::vid, tag.vid());
}

void ReceiveQueue::flush(unsigned& budget) {
  while (budget != 0 && flushes()) {
    const auto available = wq_.available();
    if (!available || *available == 0) return;
    const auto counter = wq_.ring.consumed();
    wq_.ring.consume(1);
    --budget;
    write_error(counter, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, Reason::kFlushed);
  }
}

void ReceiveQueue::write_error(std::uint16_t counter, cqe_syndrome syndrome, Reason reason) {
  std::array<std::byte, 64> cqe;
  encode_error_cqe(cqe, {.queue = ErrorQueue::kReceives,
                         .syndrome = syndrome,
                         .reason = reason,
                         .user_index = user_index_,
                         .number = rqn_.value(),
                         .wqe_counter = counter});
  post(cqe, true);
}

void ReceiveQueue::fail_queue(std::string_view reason) {
  parts_.notes.info("RQ {:#x}: {}", rqn_.value(), reason);
  parts_.event_queues.post(event_type::LOCAL_WQ_CATASTROPHIC_ERROR, 0,
                           EventQueues::queue_data(rqn_));
  state_ = State::ERR;
  dead_ = true;
}

}  // namespace softhca::connectx
