#include "connectx/qp/qp_references.h"

#include <string_view>

namespace softhca::connectx {

namespace {

using spec::connectx::ads;
using spec::connectx::qp_rq_type;
using spec::connectx::qpc;

constexpr std::string_view kQpReferencesSection = "mlx5 driver interface 7.4";

CommandResult check_limits(const Limits& limits, util::View<qpc> context) {
  const auto path = context.get(qpc::primary_address_path);
  if (path.get(ads::vhca_port_num) > 1) {
    return refuse(Status::BAD_PARAM, kQpReferencesSection, "the device has one port");
  }
  if (path.get(ads::pkey_index) >= kPkeys) {
    return refuse(Status::BAD_INDEX, kQpReferencesSection, "pkey_index is beyond the table");
  }
  const bool dci = QpContext::transport_type(context) == rdma::QpType::kDcInitiator;
  if (dci && context.get(qpc::log_sra_max) > limits.log_max_ra_req_dc) {
    return refuse(Status::EXCEED_LIM, kQpReferencesSection,
                  "log_sra_max is above log_max_ra_req_dc");
  }
  if (!dci && context.get(qpc::log_sra_max) > limits.log_max_ra_req_qp) {
    return refuse(Status::EXCEED_LIM, kQpReferencesSection,
                  "log_sra_max is above log_max_ra_req_qp");
  }
  if (context.get(qpc::log_rra_max) > limits.log_max_ra_res_qp) {
    return refuse(Status::EXCEED_LIM, kQpReferencesSection,
                  "log_rra_max is above log_max_ra_res_qp");
  }
  if (context.get(qpc::log_msg_max) > limits.log_max_msg) {
    return refuse(Status::EXCEED_LIM, kQpReferencesSection, "log_msg_max is above log_max_msg");
  }
  return {};
}

}  // namespace

tl::expected<QueuePair::Uses, Refusal> QpReferences::use_references(util::View<qpc> context) {
  QueuePair::Uses uses;
  if (auto used = use_pd_and_uar(context, uses); !used) return tl::unexpected(used.error());
  if (auto used = use_queues(context, uses); !used) return tl::unexpected(used.error());
  if (auto checked = check_limits(limits_, context); !checked)
    return tl::unexpected(checked.error());
  return uses;
}

CommandResult QpReferences::use_pd_and_uar(util::View<qpc> context, QueuePair::Uses& uses) {
  const Pd pd(context.get(qpc::pd));
  // A UMR QP gets its PD only in RST2INIT (mlx5 driver interface 7.5).
  const bool without_pd = pd == Pd() && static_cast<QpContext::Service>(context.get(qpc::st)) ==
                                            QpContext::Service::REG_UMR;
  if (!without_pd) {
    if (!resources_.pds().contains(pd)) {
      return refuse(Status::BAD_RESOURCE, kQpReferencesSection, "unknown PD");
    }
    uses.pd = resources_.pds().use(pd);
  }
  if (context.get(qpc::no_sq) != 0) return {};
  const UarPage uar(context.get(qpc::uar_page));
  if (!resources_.uars().contains(uar)) {
    return refuse(Status::BAD_RESOURCE, kQpReferencesSection, "unknown UAR page");
  }
  uses.uar = resources_.uars().use(uar);
  return {};
}

/// Acquires the XRC domain of a target. An initiator's context also names a domain and an SRQ, but
/// these are ignored.
CommandResult QpReferences::use_xrc_domain(util::View<qpc> context, QueuePair::Uses& uses) {
  if (QpContext::transport_type(context) != rdma::QpType::kXrcTarget) return {};
  const Xrcd xrcd(context.get(qpc::xrcd));
  if (!resources_.xrcds().contains(xrcd)) {
    return refuse(Status::BAD_RESOURCE, kQpReferencesSection, "unknown XRC domain");
  }
  uses.xrcd = resources_.xrcds().use(xrcd);
  return {};
}

CommandResult QpReferences::use_queues(util::View<qpc> context, QueuePair::Uses& uses) {
  const auto rq_type = static_cast<qp_rq_type>(context.get(qpc::rq_type));
  if (context.get(qpc::no_sq) == 0) {
    auto* cq = completion_queues_.find(Cqn(context.get(qpc::cqn_snd)));
    if (cq == nullptr) {
      return refuse(Status::BAD_RESOURCE, kQpReferencesSection, "unknown CQ of the send queue");
    }
    uses.send_cq = cq->use();
  }
  if (QpContext::is_xrc(context)) return use_xrc_domain(context, uses);
  if (rq_type != qp_rq_type::ZERO_LENGTH_RQ) {
    auto* cq = completion_queues_.find(Cqn(context.get(qpc::cqn_rcv)));
    if (cq == nullptr) {
      return refuse(Status::BAD_RESOURCE, kQpReferencesSection, "unknown CQ of the receive queue");
    }
    uses.receive_cq = cq->use();
  }
  // The contexts of other QPs name a dummy SRQ, which is ignored.
  if (rq_type != qp_rq_type::SRQ) return {};
  auto* srq = shared_queues_.find(Srqn(context.get(qpc::srqn_rmpn_xrqn)));
  if (srq == nullptr) return refuse(Status::BAD_RESOURCE, kQpReferencesSection, "unknown SRQ");
  if (!srq->serves_qps()) {
    return refuse(Status::BAD_RESOURCE, kQpReferencesSection, "an XRC SRQ serves XRC QPs only");
  }
  uses.srq = srq->use();
  return {};
}

}  // namespace softhca::connectx
