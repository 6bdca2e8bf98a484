// CREATE_SRQ, DESTROY_SRQ, QUERY_SRQ, ARM_RQ (mlx5 driver interface 7.6): SRQs of drivers with ISSI
// 0. Newer drivers create RMPs.
#include <algorithm>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/rdma.h"
#include "connectx/qp/shared_receive_queue.h"
#include "connectx/qp/srq_contexts.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/srq.h"

namespace softhca::connectx {

namespace {

using spec::connectx::arm_rq_in;
using spec::connectx::create_srq_in;
using spec::connectx::create_srq_out;
using spec::connectx::destroy_srq_in;
using spec::connectx::query_srq_in;
using spec::connectx::query_srq_out;
using spec::connectx::srq_context;
using spec::connectx::srq_state;
using Srq = SharedReceiveQueue;

constexpr std::string_view kSrqSection = "mlx5 driver interface 7.6";

Srq* find_srq(DriverState& driver, Srqn number) {
  auto* srq = driver.rdma().shared_queues().find(number);
  return srq != nullptr && srq->attributes().kind == Srq::Kind::kSrq ? srq : nullptr;
}

CommandResult unknown_srq() {
  return refuse(Status::BAD_RESOURCE, kSrqSection, "unknown SRQ number");
}

/// Makes the SRQ serve XRC if its context names a domain and a CQ. Drivers name both in all
/// contexts, and no other field says whether the SRQ is for XRC.
CommandResult take_xrc(DriverState& driver, util::View<srq_context> context,
                       Srq::Attributes& attributes) {
  const Xrcd xrcd(context.get(srq_context::xrcd));
  const Cqn cqn(context.get(srq_context::cqn));
  const bool has_domain = driver.resources().xrcds().contains(xrcd);
  auto* cq = driver.completion_queues().find(cqn);
  if (!has_domain && xrcd != Xrcd()) {
    return refuse(Status::BAD_RESOURCE, kSrqSection, "unknown XRC domain of an SRQ");
  }
  if (cq == nullptr && cqn != Cqn()) {
    return refuse(Status::BAD_RESOURCE, kSrqSection, "unknown CQ of an SRQ");
  }
  if (!has_domain || cq == nullptr) return {};
  attributes.serves_xrc = true;
  attributes.xrcd = xrcd;
  attributes.cqn = cqn;
  attributes.xrcd_use = driver.resources().xrcds().use(xrcd);
  attributes.cq_use = cq->use();
  return {};
}

}  // namespace

CommandResult check_srq_layout(DriverState& driver, SharedReceiveQueue::Attributes& attributes) {
  if (!driver.resources().pds().contains(attributes.pd)) {
    return refuse(Status::BAD_RESOURCE, kSrqSection, "unknown PD");
  }
  if (attributes.log_stride < SharedReceiveQueue::kLogStrideMin) {
    return refuse(Status::BAD_PARAM, kSrqSection, "log_rq_stride has no room for a WQE");
  }
  if (Limits::count(attributes.log_stride) > driver.limits().max_wqe_sz_rq) {
    return refuse(Status::EXCEED_LIM, kSrqSection, "log_rq_stride is above max_wqe_sz_rq");
  }
  if (attributes.log_size > driver.limits().log_max_srq_sz) {
    return refuse(Status::EXCEED_LIM, kSrqSection, "the size of an SRQ is above log_max_srq_sz");
  }
  attributes.pd_use = driver.resources().pds().use(attributes.pd);
  return {};
}

CommandResult create_srq(DriverState& driver, const Command& command) {
  const auto context = command.input<create_srq_in>().get(create_srq_in::srq_context_entry);
  Srq::Attributes attributes;
  attributes.kind = Srq::Kind::kSrq;
  take_srq_layout(context, context.get(srq_context::log_srq_size), attributes);
  if (auto checked = check_srq_layout(driver, attributes); !checked) return checked;
  if (auto taken = take_xrc(driver, context, attributes); !taken) return taken;
  auto mapped = driver.queue_mapper().map(
      place_of_srq(context, attributes, command.in_tail(create_srq_in::kSize)), kSrqSection);
  if (!mapped) return tl::unexpected(mapped.error());
  attributes.queue = *std::move(mapped);
  std::ranges::copy(context.bytes(), attributes.context.begin());
  auto* srq = driver.rdma().shared_queues().add(std::move(attributes));
  if (srq == nullptr) return refuse(Status::EXCEED_LIM, kSrqSection, "all SRQ numbers are in use");
  driver.rdma().shared_queues().arm(*srq,
                                    static_cast<std::uint16_t>(context.get(srq_context::lwm)));
  command.output<create_srq_out>().set(create_srq_out::srqn, srq->number().value());
  return {};
}

CommandResult destroy_srq(DriverState& driver, const Command& command) {
  auto* srq = find_srq(driver, Srqn(command.input<destroy_srq_in>().get(destroy_srq_in::srqn)));
  if (srq == nullptr) return unknown_srq();
  if (srq->in_use()) return refuse(Status::BAD_RES_STATE, kSrqSection, "QPs use the SRQ");
  driver.rdma().shared_queues().remove(*srq);
  return {};
}

CommandResult query_srq(DriverState& driver, const Command& command) {
  auto* srq = find_srq(driver, Srqn(command.input<query_srq_in>().get(query_srq_in::srqn)));
  if (srq == nullptr) return unknown_srq();
  const auto& attributes = srq->attributes();
  const auto out = command.output<query_srq_out>().sub(query_srq_out::srq_context_entry);
  std::ranges::copy(std::span(attributes.context).first(srq_context::kSize), out.bytes().begin());
  const auto state = srq->failed() ? srq_state::ERROR_STATE : srq_state::GOOD;
  out.set(srq_context::state, static_cast<std::uint32_t>(state));
  out.set(srq_context::lwm, srq->limit());
  write_page_list(command.out.subspan(query_srq_out::kSize),
                  attributes.queue.reported(attributes.queue.memory.pages()));
  return {};
}

CommandResult arm_rq(DriverState& driver, const Command& command) {
  const auto in = command.input<arm_rq_in>();
  if (command.op_mod != static_cast<std::uint16_t>(spec::connectx::arm_rq_op_mod::SRQ)) {
    return refuse(Status::BAD_OP, kSrqSection, "op_mod is not SRQ");
  }
  auto* srq = find_srq(driver, Srqn(in.get(arm_rq_in::srq_number)));
  if (srq == nullptr) return unknown_srq();
  if (srq->failed()) return refuse(Status::BAD_RESOURCE_STATE, kSrqSection, "the SRQ is in error");
  driver.rdma().shared_queues().arm(*srq, static_cast<std::uint16_t>(in.get(arm_rq_in::lwm)));
  return {};
}

}  // namespace softhca::connectx
