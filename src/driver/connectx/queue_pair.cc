#include "driver/connectx/queue_pair.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/connectx/queue_sizes.h"

namespace softhca::driver::connectx {

using spec::ads;
using spec::command_opcode;
using spec::qpc;

namespace {

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

util::Result<std::unique_ptr<QueuePair>> QueuePair::create(ProtectionDomain& pd,
                                                           const Options& options) {
  std::unique_ptr<QueuePair> qp(new QueuePair(pd, options));
  if (auto done = qp->create_on_device(); !done) return tl::unexpected(done.error());
  return qp;
}

util::Result<void> QueuePair::to_init(RemoteAccess access) {
  using in_t = spec::rst2init_qp_in;
  Request<in_t> in(command_opcode::RST2INIT_QP);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  describe_init(context);
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  allow(context, access);
  if (auto done = hca().commands().run(in); !done) return done;
  access_ = access;
  leave_reset();
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
  describe_service(context);
  context.set(qpc::mtu, static_cast<std::uint32_t>(*mtu));
  context.set(qpc::log_msg_max, hca().capabilities().get(spec::hca_cap::log_max_msg));
  context.set(qpc::remote_qpn, remote.qpn);
  context.set(qpc::next_rcv_psn, remote.psn);
  context.set(qpc::log_rra_max, connection.log_reads_as_responder);
  context.set(qpc::min_rnr_nak, connection.min_rnr_timer);
  allow(context, access_);
  return hca().commands().run(in);
}

util::Result<void> QueuePair::to_rts(const Connection& connection) {
  using in_t = spec::rtr2rts_qp_in;
  Request<in_t> in(command_opcode::RTR2RTS_QP);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  describe_service(context);
  context.set(qpc::next_send_psn, connection.psn);
  context.set(qpc::retry_count, connection.retry_count);
  context.set(qpc::rnr_retry, connection.rnr_retry);
  context.set(qpc::log_sra_max, connection.log_reads_as_requester);
  context.set(qpc::log_ack_req_freq, kLogAckRequestFrequency);
  context.sub(qpc::primary_address_path).set(ads::ack_timeout, connection.ack_timeout);
  return hca().commands().run(in);
}

util::Result<void> QueuePair::connect(const RemoteQueuePair& remote, const Connection& connection,
                                      RemoteAccess access) {
  if (auto done = to_init(access); !done) return done;
  if (auto done = to_rtr(remote, connection); !done) return done;
  return to_rts(connection);
}

PostStatus QueuePair::post_send(const SendRequest& request) {
  if (in_reset()) return PostStatus::kWrongState;
  const auto status = send_queue().post(request);
  if (status == PostStatus::kOk) ring_send_doorbell();
  return status;
}

std::size_t QueuePair::post_send(std::span<const SendRequest> requests, PostStatus& status) {
  status = in_reset() ? PostStatus::kWrongState : PostStatus::kOk;
  std::size_t posted = 0;
  while (status == PostStatus::kOk && posted < requests.size()) {
    status = send_queue().post(requests[posted]);
    if (status == PostStatus::kOk) ++posted;
  }
  if (posted != 0) ring_send_doorbell();
  return posted;
}

}  // namespace softhca::driver::connectx
