#include "driver/connectx/completion_queue.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <optional>
#include <utility>

#include "driver/connectx/completion_targets.h"
#include "driver/connectx/shared_receive_queue.h"
#include "driver/connectx/uar.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::cq_context;
using spec::cq_doorbell_record;
using spec::cq_doorbell_register;
using spec::cqe64;
using spec::cqe64_requester;
using spec::cqe64_responder;
using spec::cqe_error;
using spec::cqe_opcode;
using spec::create_cq_in;
using spec::create_cq_out;
using spec::destroy_cq_in;

namespace {

WorkStatus status_of(spec::cqe_syndrome syndrome) {
  using enum spec::cqe_syndrome;
  switch (syndrome) {
    case LOCAL_LENGTH_ERROR:
      return WorkStatus::kLocalLength;
    case LOCAL_QP_OPERATION_ERROR:
      return WorkStatus::kLocalQpOperation;
    case LOCAL_PROTECTION_ERROR:
      return WorkStatus::kLocalProtection;
    case WORK_REQUEST_FLUSHED_ERROR:
      return WorkStatus::kFlushed;
    case MEMORY_WINDOW_BIND_ERROR:
      return WorkStatus::kMemoryWindowBind;
    case BAD_RESPONSE_ERROR:
      return WorkStatus::kBadResponse;
    case LOCAL_ACCESS_ERROR:
      return WorkStatus::kLocalAccess;
    case REMOTE_INVALID_REQUEST_ERROR:
      return WorkStatus::kRemoteInvalidRequest;
    case REMOTE_ACCESS_ERROR:
      return WorkStatus::kRemoteAccess;
    case REMOTE_OPERATION_ERROR:
      return WorkStatus::kRemoteOperation;
    case TRANSPORT_RETRY_COUNTER_EXCEEDED:
      return WorkStatus::kTransportRetryExceeded;
    case RNR_RETRY_COUNTER_EXCEEDED:
      return WorkStatus::kRnrRetryExceeded;
    case REMOTE_ABORTED_ERROR:
      return WorkStatus::kRemoteAborted;
  }
  return WorkStatus::kUnknown;
}

CompletionOpcode opcode_of(spec::wqe_opcode opcode) {
  using enum spec::wqe_opcode;
  switch (opcode) {
    case SEND:
    case SEND_IMM:
    case SEND_INVAL:
      return CompletionOpcode::kSend;
    case RDMA_WRITE:
    case RDMA_WRITE_IMM:
      return CompletionOpcode::kRdmaWrite;
    case RDMA_READ:
      return CompletionOpcode::kRdmaRead;
    case ATOMIC_CS:
      return CompletionOpcode::kCompareSwap;
    case ATOMIC_FA:
      return CompletionOpcode::kFetchAdd;
    default:
      return CompletionOpcode::kOther;
  }
}

[[gnu::noinline]] void translate_error(util::View<cqe_error> cqe, Completion& out) {
  out.byte_count = 0;
  out.status = status_of(static_cast<spec::cqe_syndrome>(cqe.get(cqe_error::syndrome)));
  out.vendor_syndrome = static_cast<std::uint8_t>(cqe.get(cqe_error::vendor_error_syndrome));
}

inline void translate_receive(cqe_opcode opcode, util::View<cqe64_responder> cqe, Completion& out) {
  out.byte_count = cqe.get(cqe64_responder::byte_cnt);
  out.source_qpn = cqe.get(cqe64_responder::rqpn);
  out.l3_checksum_ok = cqe.get(cqe64_responder::l3_ok) != 0;
  out.l4_checksum_ok = cqe.get(cqe64_responder::l4_ok) != 0;
  const bool write = opcode == cqe_opcode::RESPONDER_RDMA_WRITE_WITH_IMMEDIATE;
  if (write) out.opcode = CompletionOpcode::kReceiveRdmaWithImmediate;
  if (write || opcode == cqe_opcode::RESPONDER_SEND_WITH_IMMEDIATE) {
    out.immediate = cqe.get(cqe64_responder::imm_inval_pkey);
  }
}

}  // namespace

CompletionQueue::CompletionQueue(Hca& hca, const Options& options)
    : hca_(hca),
      host_(hca.host()),
      log_size_(static_cast<unsigned>(std::bit_width(std::max(options.entries, 2u) - 1))),
      mask_((std::uint32_t{1} << log_size_) - 1),
      doorbell_page_(uar_offset(hca.uar())) {}

util::Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(Hca& hca,
                                                                       const Options& options) {
  std::unique_ptr<CompletionQueue> queue(new CompletionQueue(hca, options));
  if (auto done = queue->create_on_device(options); !done) return tl::unexpected(done.error());
  return queue;
}

util::Result<void> CompletionQueue::create_on_device(const Options& options) {
  const auto ring_size = cqe64::kSize << log_size_;
  auto memory = DmaBuffer::allocate(host_, ring_size + cq_doorbell_record::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  ring_ = memory_.bytes().data();
  // Software owns an entry whose owner bit equals the lap's parity (PRM 7.12.3.1). In the first lap
  // that is 0, so every entry must have 1 until the device has written it.
  for (std::uint32_t i = 0; i < entries(); ++i) {
    const util::MutableView<cqe64> cqe(entry(i));
    cqe.set(cqe64::opcode, static_cast<std::uint32_t>(cqe_opcode::INVALID));
    cqe.set(cqe64::owner, 1);
  }

  Request<create_cq_in> in(command_opcode::CREATE_CQ, page_list_size(ring_size));
  const auto context = in.sub(create_cq_in::cq_context_entry);
  context.set(cq_context::log_cq_size, log_size_);
  context.set(cq_context::uar_page, hca_.uar());
  context.set(cq_context::c_eqn, hca_.completion_events(options.event_vector).eqn());
  context.set(cq_context::oi, options.ignore_overrun);
  context.set(cq_context::dbr_addr, memory_.iova(ring_size));
  store_page_list(in.all().subspan(create_cq_in::pas_offset), memory_);
  const auto out = hca_.commands().execute<create_cq_out>(in);
  if (!out) return tl::unexpected(out.error());
  cqn_ = out->get(create_cq_out::cqn);
  exists_ = true;
  hca_.add_completion_queue(cqn_, *this);
  return {};
}

CompletionQueue::~CompletionQueue() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "CQ {:#x}: {}", cqn_, done.error().message);
  }
}

util::Result<void> CompletionQueue::destroy() {
  if (!std::exchange(exists_, false)) return {};
  hca_.remove_completion_queue(cqn_);
  Request<destroy_cq_in> in(command_opcode::DESTROY_CQ);
  in.set(destroy_cq_in::cqn, cqn_);
  return hca_.commands().run(in);
}

inline bool CompletionQueue::owns(std::uint32_t index) const {
  // PRM 7.12.3.2: the owner bit, "and checks that the opcode field is different than 0xf".
  const util::View<cqe64> cqe(entry(index));
  return cqe.get(cqe64::owner) == ((index & (mask_ + 1)) != 0) &&
         cqe.get(cqe64::opcode) != static_cast<std::uint32_t>(cqe_opcode::INVALID);
}

[[gnu::always_inline]] inline bool CompletionQueue::translate(util::View<cqe64> cqe,
                                                              Completion& out) {
  const auto opcode = static_cast<cqe_opcode>(cqe.get(cqe64::opcode));
  // Requester, responder and error CQEs have these fields at the same offsets.
  const util::View<cqe64_requester> common(cqe.bytes());
  const auto user_index = common.get(cqe64_requester::srqn_user_index);
  if (user_index == CompletionTargets::kMax) return false;  // swept
  auto* target = hca_.completion_targets().find(user_index);
  if (target == nullptr) return is_stray();
  const auto number = common.get(cqe64_requester::qpn);
  const auto counter = static_cast<std::uint16_t>(common.get(cqe64_requester::wqe_counter));
  const bool of_send = opcode == cqe_opcode::REQUESTER || opcode == cqe_opcode::REQUESTER_ERROR;
  const auto id =
      of_send ? target->complete_send(number, counter) : target->complete_receive(number, counter);
  if (!id) return is_stray();
  out = {.id = *id, .opcode = CompletionOpcode::kReceive, .qpn = target->number()};
  if (of_send) {
    out.opcode =
        opcode_of(static_cast<spec::wqe_opcode>(common.get(cqe64_requester::s_wqe_opcode)));
    out.byte_count = common.get(cqe64_requester::byte_cnt);
  }
  // The offsets of the other fields depend on the type of the CQE.
  if (opcode == cqe_opcode::REQUESTER_ERROR || opcode == cqe_opcode::RESPONDER_ERROR) {
    translate_error(util::View<cqe_error>(cqe.bytes()), out);
  } else if (!of_send) {
    translate_receive(opcode, util::View<cqe64_responder>(cqe.bytes()), out);
  }
  return true;
}

/// @pre the next CQE is software's
inline std::size_t CompletionQueue::drain(std::span<Completion> out) {
  std::size_t found = 0;
  do {
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool known = translate(util::View<cqe64>(entry(consumer_)), out[found]);
    ++consumer_;
    if (known) ++found;
  } while (found < out.size() && owns(consumer_));
  // Returns the entries to the device (PRM 7.12.2), after all reads of them.
  std::atomic_thread_fence(std::memory_order_release);
  const util::MutableView<cq_doorbell_record> record(
      {ring_ + (cqe64::kSize << log_size_), cq_doorbell_record::kSize});
  record.set(cq_doorbell_record::update_ci, consumer_ & cq_doorbell_record::update_ci.kMax);
  return found;
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  if (out.empty()) return 0;
  if (!owns(consumer_)) {
    host_.progress();
    if (!owns(consumer_)) return 0;
  }
  return drain(out);
}

void CompletionQueue::sweep(std::uint32_t user_index, SharedReceiveQueue* srq) {
  for (auto index = consumer_; index - consumer_ < entries() && owns(index); ++index) {
    const util::MutableView<cqe64_requester> cqe(entry(index));
    if (cqe.get(cqe64_requester::srqn_user_index) != user_index) continue;
    cqe.set(cqe64_requester::srqn_user_index, CompletionTargets::kMax);  // skipped by poll()
    const auto opcode = static_cast<cqe_opcode>(cqe.get(cqe64_requester::opcode));
    const bool of_send = opcode == cqe_opcode::REQUESTER || opcode == cqe_opcode::REQUESTER_ERROR;
    if (srq == nullptr || of_send) continue;
    (void)srq->complete(static_cast<std::uint16_t>(cqe.get(cqe64_requester::wqe_counter)));
  }
}

void CompletionQueue::arm(bool solicited_only) {
  // First the record, then the register (PRM 7.12.4).
  const auto ci = consumer_ & cq_doorbell_record::arm_ci.kMax;
  const auto sequence = arm_sequence_ & cq_doorbell_record::cmd_sn.kMax;
  const util::MutableView<cq_doorbell_record> record(
      memory_.bytes().subspan(cqe64::kSize << log_size_));
  record.set(cq_doorbell_record::cmd_sn, sequence);
  record.set(cq_doorbell_record::cmd, solicited_only);
  record.set(cq_doorbell_record::arm_ci, ci);
  std::atomic_thread_fence(std::memory_order_release);

  util::Struct<cq_doorbell_register> doorbell;
  doorbell.set(cq_doorbell_register::cmd_sn, sequence);
  doorbell.set(cq_doorbell_register::cmd, solicited_only);
  doorbell.set(cq_doorbell_register::cq_ci, ci);
  doorbell.set(cq_doorbell_register::cqn, cqn_);
  host_.write_bar(kUarBar, doorbell_page_ + spec::uar_page::cq_cmd.kOffset, doorbell.bytes());
}

}  // namespace softhca::driver::connectx
