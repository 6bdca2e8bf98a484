#include "driver/connectx/frame_sender.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "driver/connectx/queue_sizes.h"
#include "driver/connectx/uar.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/raw_queues.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::doorbell_record;
using spec::sq_context;
using spec::sq_state;
using spec::wq;

namespace {

constexpr std::size_t kBlocksMax = std::size_t{1} << 15;

}  // namespace

FrameSender::FrameSender(ProtectionDomain& pd, TransportDomain& domain, const Options& options)
    : pd_(pd), domain_(domain), hca_(pd.hca()), host_(pd.hca().host()), options_(options) {
  const auto& send = options.send;
  const auto blocks = std::size_t{send.requests} * FrameSendQueue::blocks_per_request(send);
  ring_size_ = std::bit_ceil(std::max<std::size_t>(blocks, 1)) * SendRing::kBlock;
}

util::Result<std::unique_ptr<FrameSender>> FrameSender::create(ProtectionDomain& pd,
                                                               TransportDomain& domain,
                                                               const Options& options) {
  std::unique_ptr<FrameSender> sender(new FrameSender(pd, domain, options));
  if (auto done = sender->create_on_device(); !done) return tl::unexpected(done.error());
  return sender;
}

util::Result<void> FrameSender::create_on_device() {
  if (ring_size_ / SendRing::kBlock > kBlocksMax) {
    return util::fail("CREATE_SQ: more requests than a queue can have (2^15 blocks)");
  }
  auto memory = DmaBuffer::allocate(host_, ring_size_ + doorbell_record::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  doorbell_ = uar_offset(hca_.uar()) + spec::uar_page::db_blueflame_buffer0_even.kOffset;
  if (auto done = create_tis(); !done) return done;
  if (auto done = create_sq(); !done) return done;
  queue_.attach(memory_.bytes().first(ring_size_), options_.send, number_);
  return start();
}

util::Result<void> FrameSender::create_tis() {
  Request<spec::create_tis_in> in(command_opcode::CREATE_TIS);
  const auto context = in.sub(spec::create_tis_in::tis_context);
  context.set(spec::tis_context::prio, options_.priority);
  context.set(spec::tis_context::transport_domain, domain_.number());
  const auto out = hca_.commands().execute<spec::create_tis_out>(in);
  if (!out) return tl::unexpected(out.error());
  tisn_ = out->get(spec::create_tis_out::tisn);
  has_tis_ = true;
  return {};
}

util::Result<void> FrameSender::create_sq() {
  const auto user_index = hca_.completion_targets().insert(*this);
  if (!user_index) return util::fail("CREATE_SQ: no user index left");
  user_index_ = *user_index;
  Request<spec::create_sq_in> in(command_opcode::CREATE_SQ, page_list_size(ring_size_));
  const auto context = in.sub(spec::create_sq_in::sq_context);
  context.set(sq_context::flush_in_error_en, 1);
  context.set(sq_context::user_index, user_index_);
  context.set(sq_context::cqn, options_.cq.cqn());
  context.set(sq_context::tis_lst_sz, 1);
  context.set(sq_context::tis_num, tisn_);
  const auto ring = context.sub(sq_context::wq);
  ring.set(wq::wq_type, static_cast<std::uint32_t>(spec::wq_type::CYCLIC));
  ring.set(wq::pd, pd_.pd());
  ring.set(wq::uar_page, hca_.uar());
  ring.set(wq::dbr_addr, memory_.iova(ring_size_));
  ring.set(wq::log_wq_stride, log2_of(SendRing::kBlock));
  ring.set(wq::log_wq_sz, log2_of(ring_size_ / SendRing::kBlock));
  store_page_list(in.all().subspan(spec::create_sq_in::kSize), memory_);
  const auto out = hca_.commands().execute<spec::create_sq_out>(in);
  if (!out) {
    hca_.completion_targets().erase(user_index_);
    return tl::unexpected(out.error());
  }
  number_ = out->get(spec::create_sq_out::sqn);
  exists_ = true;
  return {};
}

/// RST to RDY (PRM Table 62).
util::Result<void> FrameSender::start() {
  using In = spec::modify_sq_in;
  Request<In> in(command_opcode::MODIFY_SQ);
  in.set(In::sqn, number_);
  in.set(In::sq_state, static_cast<std::uint32_t>(sq_state::RST));
  in.sub(In::sq_context).set(sq_context::state, static_cast<std::uint32_t>(sq_state::RDY));
  return hca_.commands().run(in);
}

FrameSender::~FrameSender() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "SQ {:#x}: {}", number_, done.error().message);
  }
}

util::Result<void> FrameSender::destroy() {
  util::Result<void> done;
  if (std::exchange(exists_, false)) {
    Request<spec::destroy_sq_in> in(command_opcode::DESTROY_SQ);
    in.set(spec::destroy_sq_in::sqn, number_);
    done = hca_.commands().run(in);
    options_.cq.sweep(user_index_);
    hca_.completion_targets().erase(user_index_);
  }
  if (std::exchange(has_tis_, false)) {
    Request<spec::destroy_tis_in> in(command_opcode::DESTROY_TIS);
    in.set(spec::destroy_tis_in::tisn, tisn_);
    auto gone = hca_.commands().run(in);
    if (done) done = std::move(gone);
  }
  return done;
}

PostStatus FrameSender::post(const FrameRequest& request) {
  const auto status = queue_.post(request);
  if (status == PostStatus::kOk) ring_doorbell();
  return status;
}

std::size_t FrameSender::post(std::span<const FrameRequest> requests, PostStatus& status) {
  status = PostStatus::kOk;
  std::size_t posted = 0;
  while (status == PostStatus::kOk && posted < requests.size()) {
    status = queue_.post(requests[posted]);
    if (status == PostStatus::kOk) ++posted;
  }
  if (posted != 0) ring_doorbell();
  return posted;
}

void FrameSender::ring_doorbell() {
  // First the request, then the record, then the register (PRM 7.4.3.1).
  const util::MutableView<doorbell_record> record(memory_.bytes().subspan(ring_size_));
  std::atomic_thread_fence(std::memory_order_release);
  record.set(doorbell_record::send_counter, queue_.producer());
  std::atomic_thread_fence(std::memory_order_release);
  host_.write_bar(kUarBar, doorbell_, queue_.last_control());
}

}  // namespace softhca::driver::connectx
