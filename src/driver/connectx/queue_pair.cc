#include "driver/connectx/queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "driver/connectx/uar.h"
#include "spec/connectx/wqe.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::ads;
using spec::command_opcode;
using spec::create_qp_in;
using spec::create_qp_out;
using spec::doorbell_record;
using spec::qpc;

namespace {

constexpr std::uint32_t kPort = 1;
/// An acknowledgement is asked for at least every 2^8 packets, as mlx5 has it.
constexpr std::uint32_t kLogAckRequestFrequency = 8;
/// log_rq_stride counts from entries of 16 bytes.
constexpr unsigned kLogReceiveUnit = 4;
constexpr std::size_t kRingMax = std::size_t{1} << 15;

unsigned log2_of(std::size_t power) { return static_cast<unsigned>(std::countr_zero(power)); }

util::Result<spec::qp_mtu> mtu_code(unsigned mtu) {
  switch (mtu) {
    case 256:
      return spec::qp_mtu::BYTES_256;
    case 512:
      return spec::qp_mtu::BYTES_512;
    case 1024:
      return spec::qp_mtu::BYTES_1K;
    case 2048:
      return spec::qp_mtu::BYTES_2K;
    case 4096:
      return spec::qp_mtu::BYTES_4K;
    default:
      return util::fail(fmt::format("a path MTU of {} bytes does not exist (IBTA 9.7.6)", mtu));
  }
}

void describe_path(util::MutableView<ads> path, const RemoteQueuePair& remote,
                   const Connection& connection) {
  path.set(ads::src_addr_index, connection.source_gid_index);
  path.set(ads::hop_limit, connection.hop_limit);
  path.set(ads::tclass, connection.traffic_class);
  path.set(ads::udp_sport, connection.udp_source_port);
  path.set(ads::ack_timeout, connection.ack_timeout);
  path.set(ads::vhca_port_num, kPort);
  std::ranges::copy(remote.gid.bytes, path.sub(ads::rgid_rip).begin());
  std::ranges::copy(remote.mac.bytes, path.sub(ads::rmac).begin());
}

}  // namespace

QueuePair::QueuePair(ProtectionDomain& pd, const Options& options)
    : pd_(pd), hca_(pd.hca()), host_(pd.hca().host()), options_(options) {
  const auto& receive = options.receive;
  receive_stride_ = std::bit_ceil(std::max<std::size_t>(receive.pieces, 1)) << kLogReceiveUnit;
  // The send queue follows and begins at a whole block.
  receive_size_ =
      std::max(std::bit_ceil(std::size_t{receive.requests}) * receive_stride_, SendQueue::kBlock);
  const auto& send = options.send;
  const auto blocks = std::size_t{send.requests} * SendQueue::blocks_per_request(send);
  send_size_ = std::bit_ceil(std::max<std::size_t>(blocks, 1)) * SendQueue::kBlock;
}

util::Result<std::unique_ptr<QueuePair>> QueuePair::create(ProtectionDomain& pd,
                                                           const Options& options) {
  std::unique_ptr<QueuePair> qp(new QueuePair(pd, options));
  if (auto done = qp->create_on_device(); !done) return tl::unexpected(done.error());
  return qp;
}

util::Result<void> QueuePair::create_on_device() {
  if (send_size_ / SendQueue::kBlock > kRingMax || receive_size_ / receive_stride_ > kRingMax) {
    return util::fail("CREATE_QP: more requests than a queue can have (2^15 blocks or entries)");
  }
  const auto ring_size = receive_size_ + send_size_;
  auto memory = DmaBuffer::allocate(host_, ring_size + doorbell_record::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
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
  send_queue_.attach(memory_.bytes().subspan(receive_size_, send_size_), options_.send, number_);
  return {};
}

void QueuePair::describe_queues(util::MutableView<qpc> context) const {
  context.set(qpc::st, static_cast<std::uint32_t>(spec::service_type::RC));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
  context.set(qpc::pd, pd_.pd());
  context.set(qpc::log_rq_size, log2_of(receive_size_ / receive_stride_));
  context.set(qpc::log_rq_stride, log2_of(receive_stride_) - kLogReceiveUnit);
  context.set(qpc::log_sq_size, log2_of(send_size_ / SendQueue::kBlock));
  context.set(qpc::uar_page, hca_.uar());
  context.set(qpc::user_index, user_index_);
  context.set(qpc::cqn_snd, options_.send_cq.cqn());
  context.set(qpc::cqn_rcv, options_.receive_cq.cqn());
  context.set(qpc::dbr_addr, memory_.iova(receive_size_ + send_size_));
  context.set(qpc::rq_type, static_cast<std::uint32_t>(spec::qp_rq_type::NON_ZERO_RQ));
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
  options_.send_cq.sweep(user_index_);
  if (&options_.receive_cq != &options_.send_cq) options_.receive_cq.sweep(user_index_);
}

util::Result<void> QueuePair::to_init(RemoteAccess access) {
  using in_t = spec::rst2init_qp_in;
  Request<in_t> in(command_opcode::RST2INIT_QP);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  context.set(qpc::st, static_cast<std::uint32_t>(spec::service_type::RC));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
  context.set(qpc::pd, pd_.pd());
  context.set(qpc::cqn_snd, options_.send_cq.cqn());
  context.set(qpc::cqn_rcv, options_.receive_cq.cqn());
  context.set(qpc::dbr_addr, memory_.iova(receive_size_ + send_size_));
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  context.set(qpc::rre, access.read);
  context.set(qpc::rwe, access.write);
  context.set(qpc::rae, access.atomic);
  if (access.atomic) {
    context.set(qpc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::IB_SPEC));
  }
  context.sub(qpc::primary_address_path).set(ads::vhca_port_num, kPort);
  auto done = hca_.commands().run(in);
  if (!done) return done;
  access_ = access;
  in_reset_ = false;
  return {};
}

util::Result<void> QueuePair::to_rtr(const RemoteQueuePair& remote, const Connection& connection) {
  const auto mtu = mtu_code(connection.path_mtu);
  if (!mtu) return tl::unexpected(mtu.error());
  using in_t = spec::init2rtr_qp_in;
  Request<in_t> in(command_opcode::INIT2RTR_QP);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  describe_path(context.sub(qpc::primary_address_path), remote, connection);
  context.set(qpc::st, static_cast<std::uint32_t>(spec::service_type::RC));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
  context.set(qpc::mtu, static_cast<std::uint32_t>(*mtu));
  context.set(qpc::log_msg_max, hca_.capabilities().get(spec::hca_cap::log_max_msg));
  context.set(qpc::remote_qpn, remote.qpn);
  context.set(qpc::next_rcv_psn, remote.psn);
  context.set(qpc::log_rra_max, connection.log_reads_as_responder);
  context.set(qpc::min_rnr_nak, connection.min_rnr_timer);
  context.set(qpc::rre, access_.read);
  context.set(qpc::rwe, access_.write);
  context.set(qpc::rae, access_.atomic);
  if (access_.atomic) {
    context.set(qpc::atomic_mode, static_cast<std::uint32_t>(spec::qp_atomic_mode::IB_SPEC));
  }
  return hca_.commands().run(in);
}

util::Result<void> QueuePair::to_rts(const Connection& connection) {
  using in_t = spec::rtr2rts_qp_in;
  Request<in_t> in(command_opcode::RTR2RTS_QP);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  context.set(qpc::st, static_cast<std::uint32_t>(spec::service_type::RC));
  context.set(qpc::pm_state, static_cast<std::uint32_t>(spec::pm_state::MIGRATED));
  context.set(qpc::next_send_psn, connection.psn);
  context.set(qpc::retry_count, connection.retry_count);
  context.set(qpc::rnr_retry, connection.rnr_retry);
  context.set(qpc::log_sra_max, connection.log_reads_as_requester);
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  context.sub(qpc::primary_address_path).set(ads::ack_timeout, connection.ack_timeout);
  return hca_.commands().run(in);
}

util::Result<void> QueuePair::connect(const RemoteQueuePair& remote, const Connection& connection,
                                      RemoteAccess access) {
  if (auto done = to_init(access); !done) return done;
  if (auto done = to_rtr(remote, connection); !done) return done;
  return to_rts(connection);
}

util::Result<void> QueuePair::to_error() {
  Request<spec::qp_2err_in> in(command_opcode::QP_2ERR);
  in.set(spec::qp_2err_in::qpn, number_);
  return hca_.commands().run(in);
}

util::Result<void> QueuePair::to_reset() {
  Request<spec::qp_2rst_in> in(command_opcode::QP_2RST);
  in.set(spec::qp_2rst_in::qpn, number_);
  auto done = hca_.commands().run(in);
  if (!done) return done;
  // The counters begin at 0 again; the device does not look at the record in this state.
  in_reset_ = true;
  sweep();
  send_queue_.reset();
  receive_queue_.reset();
  std::ranges::fill(memory_.bytes().subspan(receive_size_ + send_size_, doorbell_record::kSize),
                    std::byte{0});
  return {};
}

util::Result<spec::qp_state> QueuePair::query_state() {
  Request<spec::query_qp_in> in(command_opcode::QUERY_QP);
  in.set(spec::query_qp_in::qpn, number_);
  const auto out =
      hca_.commands().execute<spec::query_qp_out>(in, page_list_size(receive_size_ + send_size_));
  if (!out) return tl::unexpected(out.error());
  return static_cast<spec::qp_state>(out->get(spec::query_qp_out::qpc).get(qpc::state));
}

PostStatus QueuePair::post_send(const SendRequest& request) {
  if (in_reset_) return PostStatus::kWrongState;
  const auto status = send_queue_.post(request);
  if (status == PostStatus::kOk) ring_send_doorbell();
  return status;
}

std::size_t QueuePair::post_send(std::span<const SendRequest> requests, PostStatus& status) {
  status = in_reset_ ? PostStatus::kWrongState : PostStatus::kOk;
  std::size_t posted = 0;
  while (status == PostStatus::kOk && posted < requests.size()) {
    status = send_queue_.post(requests[posted]);
    if (status == PostStatus::kOk) ++posted;
  }
  if (posted != 0) ring_send_doorbell();
  return posted;
}

void QueuePair::ring_send_doorbell() {
  // The request, then the record, then the register (PRM 7.4.3.1).
  const util::MutableView<doorbell_record> record(
      memory_.bytes().subspan(receive_size_ + send_size_));
  std::atomic_thread_fence(std::memory_order_release);
  record.set(doorbell_record::send_counter, send_queue_.producer());
  std::atomic_thread_fence(std::memory_order_release);
  host_.write_bar(kUarBar, doorbell_, send_queue_.last_control());
}

PostStatus QueuePair::post_receive(const ReceiveRequest& request) {
  if (in_reset_) return PostStatus::kWrongState;
  const auto status = receive_queue_.post(request);
  if (status != PostStatus::kOk) return status;
  // There is no doorbell register: the device looks at the record when it needs a request.
  const util::MutableView<doorbell_record> record(
      memory_.bytes().subspan(receive_size_ + send_size_));
  std::atomic_thread_fence(std::memory_order_release);
  record.set(doorbell_record::receive_counter, receive_queue_.producer());
  return status;
}

}  // namespace softhca::driver::connectx
