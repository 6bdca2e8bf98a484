#include "driver/connectx/shared_receive_queue.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "driver/connectx/queue_sizes.h"
#include "driver/connectx/receive_list.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/wqe.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::doorbell_record;
using spec::rmp_context;
using spec::rmp_state;
using spec::srq_next_segment;
using spec::wq;

SharedReceiveQueue::SharedReceiveQueue(ProtectionDomain& pd, const Options& options)
    : pd_(pd),
      hca_(pd.hca()),
      options_(options),
      stride_(std::bit_ceil(srq_next_segment::kSize +
                            std::max(options.pieces, 1u) * spec::receive_data_segment::kSize)),
      entries_(std::bit_ceil(std::size_t{options.requests} + 1)) {}

util::Result<std::unique_ptr<SharedReceiveQueue>> SharedReceiveQueue::create(
    ProtectionDomain& pd, const Options& options) {
  std::unique_ptr<SharedReceiveQueue> queue(new SharedReceiveQueue(pd, options));
  if (auto done = queue->create_on_device(); !done) return tl::unexpected(done.error());
  return queue;
}

util::Result<void> SharedReceiveQueue::create_on_device() {
  if (entries_.size() > kEntriesMax) {
    return util::fail("CREATE_RMP: more requests than a queue can have (2^15 entries)");
  }
  auto memory = DmaBuffer::allocate(hca_.host(), ring_size() + doorbell_record::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  const auto count = static_cast<std::uint32_t>(entries_.size());
  for (std::uint32_t i = 0; i + 1 < count; ++i) link(i, i + 1);
  tail_ = count - 1;

  using in_t = spec::create_rmp_in;
  Request<in_t> in(command_opcode::CREATE_RMP, page_list_size(ring_size()));
  const auto context = in.sub(in_t::rmp_context);
  context.set(rmp_context::state, static_cast<std::uint32_t>(rmp_state::RDY));
  const auto queue = context.sub(rmp_context::wq);
  queue.set(wq::wq_type, static_cast<std::uint32_t>(spec::wq_type::LINKED_LIST));
  queue.set(wq::log_wq_sz, log2_of(entries_.size()));
  queue.set(wq::log_wq_stride, log2_of(stride_));
  queue.set(wq::pd, pd_.pd());
  queue.set(wq::dbr_addr, memory_.iova(ring_size()));
  store_page_list(in.all().subspan(in_t::kSize), memory_);
  const auto out = hca_.commands().execute<spec::create_rmp_out>(in);
  if (!out) return tl::unexpected(out.error());
  rmpn_ = out->get(spec::create_rmp_out::rmpn);
  exists_ = true;
  return {};
}

SharedReceiveQueue::~SharedReceiveQueue() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "RMP {:#x}: {}", rmpn_, done.error().message);
  }
}

util::Result<void> SharedReceiveQueue::destroy() {
  if (!std::exchange(exists_, false)) return {};
  Request<spec::destroy_rmp_in> in(command_opcode::DESTROY_RMP);
  in.set(spec::destroy_rmp_in::rmpn, rmpn_);
  return hca_.commands().run(in);
}

util::Result<void> SharedReceiveQueue::arm_limit(unsigned limit) {
  using in_t = spec::modify_rmp_in;
  if (limit > options_.requests) {
    return util::fail("MODIFY_RMP: the limit is above the number of requests");
  }
  Request<in_t> in(command_opcode::MODIFY_RMP);
  in.set(in_t::rmp_state, static_cast<std::uint32_t>(rmp_state::RDY));
  in.set(in_t::rmpn, rmpn_);
  in.sub(in_t::modify_bitmask).set(spec::rmp_bitmask::lwm, 1);
  const auto context = in.sub(in_t::rmp_context);
  context.set(rmp_context::state, static_cast<std::uint32_t>(rmp_state::RDY));
  context.sub(rmp_context::wq).set(wq::lwm, limit);
  return hca_.commands().run(in);
}

std::uint32_t SharedReceiveQueue::link_of(std::uint32_t index) const {
  return util::View<srq_next_segment>(entry(index)).get(srq_next_segment::next_wqe_index);
}

void SharedReceiveQueue::link(std::uint32_t from, std::uint32_t to) {
  util::MutableView<srq_next_segment>(entry(from)).set(srq_next_segment::next_wqe_index, to);
}

PostStatus SharedReceiveQueue::post(const ReceiveRequest& request) {
  if (request.pieces.size() > options_.pieces) return PostStatus::kTooManyPieces;
  if (head_ == tail_) return PostStatus::kQueueFull;
  store_receive_list(entry(head_).subspan(srq_next_segment::kSize), request.pieces);
  entries_[head_] = {.id = request.id, .posted = true};
  head_ = link_of(head_);
  ++counter_;
  // First the request, then the record, which the device reads when it needs a request.
  std::atomic_thread_fence(std::memory_order_release);
  util::MutableView<doorbell_record>(memory_.bytes().subspan(ring_size()))
      .set(doorbell_record::receive_counter, counter_);
  return PostStatus::kOk;
}

std::optional<std::uint64_t> SharedReceiveQueue::complete(std::uint16_t index) {
  if (index >= entries_.size() || !entries_[index].posted) return std::nullopt;
  entries_[index].posted = false;
  link(tail_, index);
  tail_ = index;
  return entries_[index].id;
}

}  // namespace softhca::driver::connectx
