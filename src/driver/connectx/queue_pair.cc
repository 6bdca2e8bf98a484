#include "driver/connectx/queue_pair.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "driver/connectx/queue_sizes.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::create_qp_in;
using spec::create_qp_out;
using spec::doorbell_record;
using spec::qpc;

namespace {

/// Entries of 16 bytes have log_rq_stride 0.
constexpr unsigned kLogReceiveUnit = 4;

}  // namespace

QueuePair::QueuePair(ProtectionDomain& pd, const Options& options)
    : pd_(pd),
      hca_(pd.hca()),
      host_(pd.hca().host()),
      options_(options),
      is_datagram_(options.service == spec::service_type::UD ||
                   options.service == spec::service_type::QP1) {
  const auto& receive = options.receive;
  receive_stride_ = std::bit_ceil(std::max<std::size_t>(receive.pieces, 1)) << kLogReceiveUnit;
  // The send queue follows, at a block boundary or at the alignment that the card requires.
  if (receive.requests != 0 && options.srq == nullptr) {
    receive_size_ =
        std::max(std::bit_ceil(std::size_t{receive.requests}) * receive_stride_, SendRing::kBlock);
  }
  const auto alignment = std::max(hca_.options().send_queue_alignment, SendRing::kBlock);
  send_offset_ = (receive_size_ + alignment - 1) / alignment * alignment;
  const auto blocks = is_datagram_ ? SendQueue::blocks_per_datagram(options.send)
                                   : SendQueue::blocks_per_request(options.send);
  const auto all = std::size_t{options.send.requests} * blocks;
  send_size_ = std::bit_ceil(std::max<std::size_t>(all, 1)) * SendRing::kBlock;
}

util::Result<std::unique_ptr<QueuePair>> QueuePair::create(ProtectionDomain& pd,
                                                           const Options& options) {
  std::unique_ptr<QueuePair> qp(new QueuePair(pd, options));
  if (auto done = qp->create_on_device(); !done) return tl::unexpected(done.error());
  return qp;
}

util::Result<void> QueuePair::create_on_device() {
  if (send_size_ / SendRing::kBlock > kEntriesMax ||
      receive_size_ / receive_stride_ > kEntriesMax) {
    return util::fail("CREATE_QP: more requests than a queue can have (2^15 blocks or entries)");
  }
  const auto ring_size = send_offset_ + send_size_;
  auto memory = DmaBuffer::allocate(host_, ring_size + doorbell_record::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  record_ = memory_.bytes().data() + ring_size;
  const auto user_index = hca_.completion_targets().insert(*this);
  if (!user_index) return util::fail("CREATE_QP: no user index left");
  user_index_ = *user_index;

  Request<create_qp_in> in(command_opcode::CREATE_QP, page_list_size(ring_size));
  describe_queues(in.sub(create_qp_in::qpc));
  store_page_list(in.all().subspan(create_qp_in::pas_offset), memory_);
  const auto out = hca_.commands().execute<create_qp_out>(in);
  if (!out) {
    hca_.completion_targets().erase(user_index_);
    return tl::unexpected(out.error());
  }
  number_ = out->get(create_qp_out::qpn);
  exists_ = true;
  doorbell_ = uar_offset(hca_.uar()) + spec::uar_page::db_blueflame_buffer0_even.kOffset;
  receive_queue_.attach(memory_.bytes().first(receive_size_), receive_stride_, options_.receive);
  send_queue_.attach(memory_.bytes().subspan(send_offset_, send_size_), options_.send, number_);
  return {};
}

void QueuePair::describe_queues(util::MutableView<qpc> context) const {
  describe_service(context);
  describe_objects(context);
  if (receive_size_ != 0) {
    context.set(qpc::log_rq_size, log2_of(receive_size_ / receive_stride_));
    context.set(qpc::log_rq_stride, log2_of(receive_stride_) - kLogReceiveUnit);
  }
  context.set(qpc::log_sq_size, log2_of(send_size_ / SendRing::kBlock));
  context.set(qpc::uar_page, hca_.uar());
  context.set(qpc::user_index, user_index_);
  auto rq_type =
      receive_size_ == 0 ? spec::qp_rq_type::ZERO_LENGTH_RQ : spec::qp_rq_type::NON_ZERO_RQ;
  if (options_.srq != nullptr) {
    rq_type = spec::qp_rq_type::SRQ;
    context.set(qpc::srqn_rmpn_xrqn, options_.srq->rmpn());
  }
  context.set(qpc::rq_type, static_cast<std::uint32_t>(rq_type));
}

void QueuePair::describe_service(util::MutableView<qpc> context) const {
  context.set(qpc::st, static_cast<std::uint32_t>(options_.service));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
}

void QueuePair::describe_objects(util::MutableView<qpc> context) const {
  context.set(qpc::pd, pd_.pd());
  context.set(qpc::cqn_snd, options_.send_cq.cqn());
  context.set(qpc::cqn_rcv, options_.receive_cq.cqn());
  context.set(qpc::dbr_addr, memory_.iova(send_offset_ + send_size_));
}

QueuePair::~QueuePair() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "QP {:#x}: {}", number_, done.error().message);
  }
}

util::Result<void> QueuePair::destroy() {
  if (!std::exchange(exists_, false)) return {};
  Request<spec::destroy_qp_in> in(command_opcode::DESTROY_QP);
  in.set(spec::destroy_qp_in::qpn, number_);
  auto done = hca_.commands().run(in);
  sweep();
  hca_.completion_targets().erase(user_index_);
  return done;
}

void QueuePair::sweep() {
  options_.send_cq.sweep(user_index_, options_.srq);
  if (&options_.receive_cq != &options_.send_cq) {
    options_.receive_cq.sweep(user_index_, options_.srq);
  }
}

PostStatus QueuePair::post_send(const SendRequest& request) {
  if (in_reset_) return PostStatus::kWrongState;
  const auto status = write(request);
  if (status == PostStatus::kOk) ring_send_doorbell();
  return status;
}

std::size_t QueuePair::post_send(std::span<const SendRequest> requests, PostStatus& status) {
  status = in_reset_ ? PostStatus::kWrongState : PostStatus::kOk;
  std::size_t posted = 0;
  while (status == PostStatus::kOk && posted < requests.size()) {
    status = write(requests[posted]);
    if (status == PostStatus::kOk) ++posted;
  }
  if (posted != 0) ring_send_doorbell();
  return posted;
}

PostStatus QueuePair::post_wqe(std::uint64_t id, std::span<std::byte> wqe) {
  if (in_reset_) return PostStatus::kWrongState;
  const auto status = send_queue_.post_wqe(id, wqe);
  if (status == PostStatus::kOk) ring_send_doorbell();
  return status;
}

PostStatus QueuePair::post_receive(const ReceiveRequest& request) {
  if (in_reset_) return PostStatus::kWrongState;
  if (options_.srq != nullptr) return PostStatus::kBadRequest;
  const auto status = receive_queue_.post(request);
  if (status != PostStatus::kOk) return status;
  // There is no doorbell register: the device reads the record when it needs a request.
  std::atomic_thread_fence(std::memory_order_release);
  record().set(doorbell_record::receive_counter, receive_queue_.producer());
  return status;
}

std::size_t QueuePair::post_receive(std::span<const ReceiveRequest> requests, PostStatus& status) {
  status = PostStatus::kOk;
  std::size_t posted = 0;
  while (posted < requests.size()) {
    status = post_receive(requests[posted]);
    if (status != PostStatus::kOk) break;
    ++posted;
  }
  return posted;
}

}  // namespace softhca::driver::connectx
