#include "driver/jingzhao/completion_queue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "driver/jingzhao/hca.h"
#include "driver/jingzhao/owned_entries.h"
#include "driver/jingzhao/queue_pair.h"
#include "spec/infiniband/transport.h"
#include "util/log.h"

namespace softhca::driver::jingzhao {

using spec::cq_context;
using spec::cqe;
using spec::error_cqe;
using spec::wqe_opcode;

namespace {

WorkStatus status_of(spec::syndrome syndrome) {
  using enum spec::syndrome;
  switch (syndrome) {
    case LOCAL_LENGTH_ERR:
      return WorkStatus::kLocalLength;
    case LOCAL_QP_OP_ERR:
      return WorkStatus::kLocalQpOperation;
    case LOCAL_PROT_ERR:
      return WorkStatus::kLocalProtection;
    case WR_FLUSH_ERR:
      return WorkStatus::kFlushed;
    case MW_BIND_ERR:
      return WorkStatus::kMemoryWindowBind;
    case BAD_RESP_ERR:
      return WorkStatus::kBadResponse;
    case LOCAL_ACCESS_ERR:
      return WorkStatus::kLocalAccess;
    case REMOTE_INVAL_REQ_ERR:
      return WorkStatus::kRemoteInvalidRequest;
    case REMOTE_ACCESS_ERR:
      return WorkStatus::kRemoteAccess;
    case REMOTE_OP_ERR:
      return WorkStatus::kRemoteOperation;
    case RETRY_EXC_ERR:
      return WorkStatus::kTransportRetryExceeded;
    case RNR_RETRY_EXC_ERR:
      return WorkStatus::kRnrRetryExceeded;
    case REMOTE_ABORTED_ERR:
      return WorkStatus::kRemoteAborted;
    default:
      return WorkStatus::kUnknown;
  }
}

CompletionOpcode opcode_of_send(std::uint32_t opcode) {
  switch (wqe_opcode(opcode)) {
    case wqe_opcode::SEND:
    case wqe_opcode::SEND_IMM:
      return CompletionOpcode::kSend;
    case wqe_opcode::RDMA_WRITE:
    case wqe_opcode::RDMA_WRITE_IMM:
      return CompletionOpcode::kRdmaWrite;
    case wqe_opcode::RDMA_READ:
      return CompletionOpcode::kRdmaRead;
    case wqe_opcode::ATOMIC_CS:
      return CompletionOpcode::kCompareSwap;
    case wqe_opcode::ATOMIC_FA:
      return CompletionOpcode::kFetchAdd;
    default:
      return CompletionOpcode::kOther;
  }
}

/// The CQE has the opcode of the last packet, whose bits 7:5 are the service.
void translate_receive(util::View<cqe> entry, Completion& out) {
  using enum softhca::spec::infiniband::bth_opcode;
  constexpr std::uint32_t kOperation = 0x1F;
  out.opcode = CompletionOpcode::kReceive;
  out.source_qpn = entry.get(cqe::rqpn);
  out.source_lid = static_cast<std::uint16_t>(entry.get(cqe::rlid));
  switch (softhca::spec::infiniband::bth_opcode(entry.get(cqe::opcode) & kOperation)) {
    case RC_RDMA_WRITE_LAST_WITH_IMMEDIATE:
    case RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE:
      out.opcode = CompletionOpcode::kReceiveRdmaWithImmediate;
      [[fallthrough]];
    case RC_SEND_LAST_WITH_IMMEDIATE:
    case RC_SEND_ONLY_WITH_IMMEDIATE:
      out.immediate = entry.get(cqe::imm);
      break;
    default:
      break;
  }
}

}  // namespace

util::Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(Hca& hca,
                                                                       const Options& options) {
  std::unique_ptr<CompletionQueue> queue(new CompletionQueue(hca));
  if (auto done = queue->create_on_device(options); !done) return tl::unexpected(done.error());
  return queue;
}

/// Allocates a ring whose entries the device owns.
util::Result<void> CompletionQueue::allocate(unsigned log_size, DmaBuffer& memory,
                                             std::unique_ptr<MemoryKey>& key) {
  auto made = DmaBuffer::allocate(hca_.host(), std::size_t{cqe::kSize} << log_size);
  if (!made) return tl::unexpected(made.error());
  memory = std::move(*made);
  give_all(memory.bytes());
  auto registered = MemoryKey::of_queue(hca_, 0, memory);
  if (!registered) return tl::unexpected(registered.error());
  key = std::move(*registered);
  return {};
}

util::Result<void> CompletionQueue::create_on_device(const Options& options) {
  const auto cqn = hca_.cqns().allocate();
  if (!cqn) return util::fail("all CQs are in use");
  cqn_ = *cqn;
  has_number_ = true;
  log_size_ = static_cast<unsigned>(std::bit_width(std::max(options.entries, 2u) - 1));
  if (auto done = allocate(log_size_, memory_, key_); !done) return done;
  util::Struct<cq_context> context;
  context.set(cq_context::tr, 1);
  context.set(cq_context::start, memory_.iova());
  context.set(cq_context::logsize, log_size_);
  context.set(cq_context::comp_eqn, 1);
  context.set(cq_context::lkey, key_->key());
  context.set(cq_context::cqn, cqn_);
  constexpr std::size_t kMailbox = 64;
  auto done = hca_.run({.op = spec::command_opcode::SW2HW_CQ,
                        .in_modifier = cqn_,
                        .in = context.bytes().first(kMailbox)});
  exists_ = done.has_value();
  if (exists_) hca_.add(cqn_, *this);
  return done;
}

CompletionQueue::~CompletionQueue() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "CQ {:#x}: {}", cqn_, done.error().message);
  }
}

util::Result<void> CompletionQueue::destroy() {
  util::Result<void> done;
  if (std::exchange(exists_, false)) {
    hca_.remove_completion_queue(cqn_);
    done = hca_.run({.op = spec::command_opcode::HW2SW_CQ, .in_modifier = cqn_});
  }
  if (std::exchange(has_number_, false)) hca_.cqns().free(cqn_);
  return done;
}

/// The device continues at its producer index modulo the new size. Completions in the old ring are
/// read after the command, and copied to their positions in the new one.
util::Result<void> CompletionQueue::resize(unsigned entries) {
  const auto log_size = static_cast<unsigned>(std::bit_width(std::max(entries, 2u) - 1));
  DmaBuffer memory;
  std::unique_ptr<MemoryKey> key;
  if (auto done = allocate(log_size, memory, key); !done) return done;
  util::Struct<spec::resize_cq_in> in;
  in.set(spec::resize_cq_in::logsize, log_size);
  in.set(spec::resize_cq_in::lkey, key->key());
  const auto done =
      hca_.run({.op = spec::command_opcode::RESIZE_CQ, .in_modifier = cqn_, .in = in.bytes()});
  if (!done) return done;
  const auto mask = (std::uint32_t{1} << log_size) - 1;
  for (auto index = consumer_; index - consumer_ <= mask; ++index) {
    const auto old = entry(index);
    if (!is_ours(old)) break;
    std::ranges::copy(old, memory.bytes().subspan(std::size_t{index & mask} * cqe::kSize).begin());
    give_back(old);
  }
  std::swap(memory_, memory);
  std::swap(key_, key);
  log_size_ = log_size;
  return {};
}

/// Sets `wanted` if the program requested this completion.
[[gnu::always_inline]] inline bool CompletionQueue::translate(util::View<cqe> entry,
                                                              Completion& out, bool& wanted) {
  const auto qpn = entry.get(cqe::my_qpn);
  auto* qp = hca_.find_queue_pair(qpn);
  if (qp == nullptr) return false;
  const bool of_send = entry.get(cqe::is_send) != 0;
  const auto place = entry.get(cqe::wqe);
  const auto opcode = entry.get(cqe::opcode);
  const bool failed = opcode >= static_cast<std::uint32_t>(wqe_opcode::RECEIVE_ERROR);
  const auto* const done = of_send ? qp->complete_send(place) : qp->complete_receive(place);
  if (done == nullptr) return false;
  wanted = failed || done->signaled;
  if (!wanted) return true;
  out = {.id = done->id, .qpn = qpn};
  if (failed) {
    const util::View<error_cqe> error(entry.bytes());
    out.status = status_of(spec::syndrome(error.get(error_cqe::syndrome)));
    out.vendor_syndrome = static_cast<std::uint8_t>(error.get(error_cqe::vendor_err));
    out.opcode = of_send ? CompletionOpcode::kOther : CompletionOpcode::kReceive;
    return true;
  }
  out.byte_count = entry.get(cqe::byte_cnt);
  if (of_send) {
    out.opcode = opcode_of_send(opcode);
  } else {
    translate_receive(entry, out);
  }
  return true;
}

std::size_t CompletionQueue::poll(std::span<Completion> out) {
  std::size_t found = 0;
  bool progressed = false;
  while (found < out.size()) {
    const auto at = entry(consumer_);
    if (!is_ours(at)) {
      if (found != 0 || std::exchange(progressed, true)) break;
      hca_.host().progress();
      continue;
    }
    bool wanted = false;
    const bool swept = util::View<cqe>(at).get(cqe::my_qpn) == UINT32_MAX;
    const bool known = !swept && translate(util::View<cqe>(at), out[found], wanted);
    give_back(at);
    ++consumer_;
    if (!known && !swept) ++strays_;
    if (known && wanted) ++found;
  }
  return found;
}

void CompletionQueue::sweep(std::uint32_t qpn) {
  for (auto index = consumer_; index - consumer_ < entries(); ++index) {
    const auto at = entry(index);
    if (!is_ours(at)) break;
    const util::MutableView<cqe> view(at);
    if (view.get(cqe::my_qpn) == qpn) view.set(cqe::my_qpn, UINT32_MAX);
  }
}

void CompletionQueue::arm() {
  std::array<std::byte, sizeof(std::uint32_t)> doorbell;
  util::store_le32(doorbell.data(), cqn_);
  hca_.host().write_bar(kUarBar, hca_.uar() + spec::uar_page::arm_cqn.kOffset, doorbell);
}

}  // namespace softhca::driver::jingzhao
