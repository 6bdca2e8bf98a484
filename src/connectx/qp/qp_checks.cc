#include "connectx/qp/qp_checks.h"

#include "connectx/base/resources.h"
#include "connectx/device.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

namespace {

using spec::connectx::ads;
using spec::connectx::qp_rq_type;
using spec::connectx::qpc;

constexpr std::string_view kSection = "mlx5 driver interface 7.4";

bool has_cq(Device& device, std::uint32_t cqn) {
  return device.completion_queues().find(Cqn(cqn)) != nullptr;
}

CommandResult check_queues(Device& device, util::View<qpc> context) {
  const auto rq_type = static_cast<qp_rq_type>(context.get(qpc::rq_type));
  if (context.get(qpc::no_sq) == 0 && !has_cq(device, context.get(qpc::cqn_snd))) {
    return refuse(Status::BAD_RESOURCE, kSection, "unknown CQ of the send queue");
  }
  if (rq_type != qp_rq_type::ZERO_LENGTH_RQ && !has_cq(device, context.get(qpc::cqn_rcv))) {
    return refuse(Status::BAD_RESOURCE, kSection, "unknown CQ of the receive queue");
  }
  // Other QPs carry the number of a dummy SRQ, which means nothing.
  if (rq_type != qp_rq_type::SRQ) return {};
  const auto* srq = device.rdma().find_srq(Srqn(context.get(qpc::srqn_rmpn_xrqn)));
  if (srq == nullptr) return refuse(Status::BAD_RESOURCE, kSection, "unknown SRQ");
  if (srq->attributes().kind != SharedReceiveQueue::Kind::kRmp) {
    return refuse(Status::BAD_RESOURCE, kSection, "an XRC SRQ serves XRC QPs only");
  }
  return {};
}

}  // namespace

CommandResult check_qp_references(Device& device, util::View<qpc> context) {
  // A UMR QP gets its PD on the way to INIT (mlx5 driver interface 7.5).
  const bool without_pd =
      context.get(qpc::pd) == 0 &&
      static_cast<QueuePair::Service>(context.get(qpc::st)) == QueuePair::Service::REG_UMR;
  if (!without_pd && !device.resources().pds().contains(Pd(context.get(qpc::pd)))) {
    return refuse(Status::BAD_RESOURCE, kSection, "unknown PD");
  }
  if (auto checked = check_queues(device, context); !checked) return checked;
  const auto path = context.get(qpc::primary_address_path);
  if (path.get(ads::vhca_port_num) > 1) {
    return refuse(Status::BAD_PARAM, kSection, "the device has one port");
  }
  const auto& limits = device.limits();
  if (context.get(qpc::log_sra_max) > limits.log_max_ra_req_qp) {
    return refuse(Status::EXCEED_LIM, kSection, "log_sra_max is above log_max_ra_req_qp");
  }
  if (context.get(qpc::log_rra_max) > limits.log_max_ra_res_qp) {
    return refuse(Status::EXCEED_LIM, kSection, "log_rra_max is above log_max_ra_res_qp");
  }
  if (context.get(qpc::log_msg_max) > limits.log_max_msg) {
    return refuse(Status::EXCEED_LIM, kSection, "log_msg_max is above log_max_msg");
  }
  return {};
}

}  // namespace softhca::connectx
