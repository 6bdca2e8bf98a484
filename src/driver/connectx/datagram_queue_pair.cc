#include "driver/connectx/datagram_queue_pair.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::qpc;

util::Result<std::unique_ptr<DatagramQueuePair>> DatagramQueuePair::create(ProtectionDomain& pd,
                                                                           const Options& options) {
  std::unique_ptr<DatagramQueuePair> qp(new DatagramQueuePair(pd, options, spec::service_type::UD));
  if (auto done = qp->create_on_device(); !done) return tl::unexpected(done.error());
  return qp;
}

util::Result<std::unique_ptr<DatagramQueuePair>> DatagramQueuePair::create_management(
    ProtectionDomain& pd, const Options& options) {
  std::unique_ptr<DatagramQueuePair> qp(
      new DatagramQueuePair(pd, options, spec::service_type::QP1));
  if (auto done = qp->create_on_device(); !done) return tl::unexpected(done.error());
  return qp;
}

util::Result<void> DatagramQueuePair::to_init(std::uint32_t qkey) {
  using in_t = spec::rst2init_qp_in;
  Request<in_t> in(command_opcode::RST2INIT_QP);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  describe_init(context);
  context.set(qpc::q_key, qkey);
  if (auto done = hca().commands().run(in); !done) return done;
  leave_reset();
  return {};
}

util::Result<void> DatagramQueuePair::to_rtr() {
  using in_t = spec::init2rtr_qp_in;
  Request<in_t> in(command_opcode::INIT2RTR_QP);
  in.set(in_t::qpn, number_);
  const auto context = in.sub(in_t::qpc);
  describe_service(context);
  // As in mlx5 for UD: the largest MTU, and messages of that length.
  context.set(qpc::mtu, static_cast<std::uint32_t>(spec::qp_mtu::BYTES_4K));
  context.set(qpc::log_msg_max, 12);
  return hca().commands().run(in);
}

util::Result<void> DatagramQueuePair::to_rts() {
  using in_t = spec::rtr2rts_qp_in;
  Request<in_t> in(command_opcode::RTR2RTS_QP);
  in.set(in_t::qpn, number_);
  describe_service(in.sub(in_t::qpc));
  return hca().commands().run(in);
}

util::Result<void> DatagramQueuePair::resume() {
  using in_t = spec::sqerr2rts_qp_in;
  Request<in_t> in(command_opcode::SQERR2RTS_QP);
  in.set(in_t::qpn, number_);
  describe_service(in.sub(in_t::qpc));
  return hca().commands().run(in);
}

util::Result<void> DatagramQueuePair::activate(std::uint32_t qkey) {
  if (auto done = to_init(qkey); !done) return done;
  if (auto done = to_rtr(); !done) return done;
  return to_rts();
}

PostStatus DatagramQueuePair::post_send(const SendRequest& request) {
  if (in_reset()) return PostStatus::kWrongState;
  const auto status = send_queue().post_datagram(request);
  if (status == PostStatus::kOk) ring_send_doorbell();
  return status;
}

}  // namespace softhca::driver::connectx
