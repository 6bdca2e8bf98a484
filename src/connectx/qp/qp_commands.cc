// CREATE_QP, DESTROY_QP, QUERY_QP (mlx5 driver interface 7.2).
#include <algorithm>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/function/capabilities.h"
#include "connectx/qp/qp_references.h"
#include "connectx/qp/queue_pair.h"
#include "connectx/qp/rdma.h"
#include "spec/connectx/qp.h"

namespace softhca::connectx {

namespace {

using spec::connectx::ads;
using spec::connectx::create_qp_in;
using spec::connectx::create_qp_out;
using spec::connectx::destroy_qp_in;
using spec::connectx::qp_cs_req;
using spec::connectx::qp_cs_res;
using spec::connectx::qp_rq_type;
using spec::connectx::qp_state;
using spec::connectx::qpc;
using spec::connectx::query_qp_in;
using spec::connectx::query_qp_out;

constexpr std::string_view kQpSection = "mlx5 driver interface 7.2";

/// True if the device has the service. A card with fewer capabilities has fewer services.
bool is_offered(DriverState& driver, util::View<qpc> context) {
  using spec::connectx::hca_cap;
  const auto caps = driver.capabilities().general();
  switch (static_cast<QpContext::Service>(context.get(qpc::st))) {
    case QpContext::Service::UC:
      return caps.get(hca_cap::uc) != 0;
    case QpContext::Service::DCI:
      return caps.get(hca_cap::dct) != 0;
    default:
      return true;
  }
}

CommandResult check_create(DriverState& driver, util::View<create_qp_in> in) {
  const auto context = in.get(create_qp_in::qpc);
  if (!QpContext::transport_type(context)) {
    return refuse(Status::BAD_PARAM, kQpSection, "the service type is not offered");
  }
  if (!is_offered(driver, context)) {
    return refuse(Status::BAD_PARAM, kQpSection, "the card does not have this service");
  }
  const auto rq_type = static_cast<qp_rq_type>(context.get(qpc::rq_type));
  if (rq_type != qp_rq_type::NON_ZERO_RQ && rq_type != qp_rq_type::SRQ &&
      rq_type != qp_rq_type::ZERO_LENGTH_RQ) {
    return refuse(Status::BAD_PARAM, kQpSection, "rq_type is neither RQ, SRQ nor none");
  }
  if (to_string(static_cast<qp_cs_req>(context.get(qpc::cs_req))).empty() ||
      to_string(static_cast<qp_cs_res>(context.get(qpc::cs_res))).empty()) {
    return refuse(Status::BAD_PARAM, kQpSection, "unknown cs_req or cs_res");
  }
  const auto& limits = driver.limits();
  if (context.get(qpc::no_sq) == 0 && context.get(qpc::log_sq_size) > limits.log_max_qp_sz) {
    return refuse(Status::EXCEED_LIM, kQpSection, "log_sq_size is above log_max_qp_sz");
  }
  if (rq_type == qp_rq_type::NON_ZERO_RQ && !QpContext::is_xrc(context)) {
    if (context.get(qpc::log_rq_size) > limits.log_max_qp_sz) {
      return refuse(Status::EXCEED_LIM, kQpSection, "log_rq_size is above log_max_qp_sz");
    }
    if (QpContext::receive_stride(context) > limits.max_wqe_sz_rq) {
      return refuse(Status::EXCEED_LIM, kQpSection, "log_rq_stride is above max_wqe_sz_rq");
    }
  }
  return {};
}

qp_state state_code(const rdma::QueuePair& qp) {
  switch (qp.state()) {
    case rdma::QpState::kReset:
      return qp_state::RST;
    case rdma::QpState::kInit:
      return qp_state::INIT;
    case rdma::QpState::kRtr:
      return qp_state::RTR;
    case rdma::QpState::kRts:
      return qp_state::RTS;
    case rdma::QpState::kSqError:
      return qp_state::SQER;
    case rdma::QpState::kSqDrain:
      return qp.drained() ? qp_state::SQD : qp_state::SQ_DRAINING;
    case rdma::QpState::kError:
      break;
  }
  return qp_state::ERR;
}

/// Overwrites the fields that the device updates in the driver's context.
void write_live_fields(util::MutableView<qpc> out, QueuePair& qp) {
  const auto& transport = qp.rdma_qp();
  out.set(qpc::state, static_cast<std::uint32_t>(state_code(transport)));
  out.set(qpc::next_send_psn, transport.next_send_psn());
  out.set(qpc::last_acked_psn, transport.last_acked_psn());
  out.set(qpc::next_rcv_psn, transport.next_receive_psn());
  out.set(qpc::ssn, transport.send_sequence() & qpc::ssn.kMax);
  out.set(qpc::rmsn, transport.receive_sequence() & qpc::rmsn.kMax);
  out.set(qpc::cur_retry_count, transport.retries_left());
  out.set(qpc::cur_rnr_retry, transport.rnr_retries_left());
  out.set(qpc::hw_sq_wqebb_counter, qp.send_queue().ring().consumed());
  out.set(qpc::hw_rq_counter, qp.receive_queue().ring().consumed());
  if (const auto counter = qp.record().read(1)) {
    out.set(qpc::sw_sq_wqebb_counter, *counter & qpc::sw_sq_wqebb_counter.kMax);
  }
  if (const auto counter = qp.record().read(0)) {
    out.set(qpc::sw_rq_counter, *counter & qpc::sw_rq_counter.kMax);
  }
  // If the port is 0, drivers report an empty address handle.
  const auto path = out.sub(qpc::primary_address_path);
  if (path.get(ads::vhca_port_num) == 0) path.set(ads::vhca_port_num, 1);
}

/// True if the driver has chosen mode 1. In mode 0, results are in wire order.
bool atomics_in_host_order(const Capabilities& capabilities) {
  using spec::connectx::atomic_cap;
  const auto image = capabilities.current(spec::connectx::hca_cap_type::ATOMIC);
  return !image.empty() &&
         util::View<atomic_cap>(image).get(atomic_cap::atomic_req_8B_endianness_mode) == 1;
}

}  // namespace

CommandResult create_qp(DriverState& driver, const Command& command) {
  const auto in = command.input<create_qp_in>();
  const auto context = in.get(create_qp_in::qpc);
  if (auto checked = check_create(driver, in); !checked) return checked;
  using spec::connectx::service_type;
  // mlx5_ib also refuses a second QP1, with EBUSY.
  if (service_type(context.get(qpc::st)) == service_type::QP1 && driver.rdma().has_gsi()) {
    return refuse(Status::RESOURCE_BUSY, kQpSection, "the port has a QP1 already");
  }
  QpReferences references(driver.limits(), driver.resources(), driver.completion_queues(),
                          driver.rdma().shared_queues());
  auto uses = references.use_references(context);
  if (!uses) return tl::unexpected(uses.error());
  auto place = QpContext::place(context, command.in_tail(create_qp_in::kSize),
                                driver.model().send_queue_alignment);
  place.set_umem(in.get(create_qp_in::wq_umem_valid) != 0, in.get(create_qp_in::wq_umem_id),
                 in.get(create_qp_in::wq_umem_offset));
  auto queue = driver.queue_mapper().map(place, kQpSection);
  if (!queue) return tl::unexpected(queue.error());
  using spec::connectx::hca_cap;
  const bool atomics = driver.capabilities().general().get(hca_cap::atomic) != 0;
  const auto* added =
      driver.rdma().add_qp(context, {std::move(*queue), std::move(*uses), atomics,
                                     !atomics_in_host_order(driver.capabilities())});
  if (added == nullptr) return refuse(Status::NO_RESOURCES, kQpSection, "all QPNs are in use");
  command.output<create_qp_out>().set(create_qp_out::qpn, added->qpn().value());
  return {};
}

CommandResult destroy_qp(DriverState& driver, const Command& command) {
  auto* qp = driver.rdma().find_qp(Qpn(command.input<destroy_qp_in>().get(destroy_qp_in::qpn)));
  if (qp == nullptr) return refuse(Status::BAD_RESOURCE, kQpSection, "unknown QPN");
  if (!driver.rdma().transport().groups().leave(qp->qpn(), command.work)) {
    command.unfinished = true;
    return {};
  }
  command.work.charge(qp->memory().dismantle_work());
  driver.rdma().remove_qp(*qp);
  return {};
}

CommandResult query_qp(DriverState& driver, const Command& command) {
  auto* qp = driver.rdma().find_qp(Qpn(command.input<query_qp_in>().get(query_qp_in::qpn)));
  if (qp == nullptr) return refuse(Status::BAD_RESOURCE, kQpSection, "unknown QPN");
  const auto out = command.output<query_qp_out>().sub(query_qp_out::qpc);
  std::ranges::copy(qp->context().view().bytes(), out.bytes().begin());
  write_live_fields(out, *qp);
  write_page_list(command.out.subspan(query_qp_out::kSize), qp->pages());
  return {};
}

}  // namespace softhca::connectx
