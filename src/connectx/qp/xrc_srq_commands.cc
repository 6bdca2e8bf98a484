// CREATE_XRC_SRQ, DESTROY_XRC_SRQ, QUERY_XRC_SRQ, ARM_XRC_SRQ (mlx5 driver interface 7.6).
//
// Drivers always create an XRC SRQ before their first QP, even if they do not use XRC.
#include <algorithm>
#include <utility>

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

using spec::connectx::arm_xrc_srq_in;
using spec::connectx::create_xrc_srq_in;
using spec::connectx::create_xrc_srq_out;
using spec::connectx::destroy_xrc_srq_in;
using spec::connectx::query_xrc_srq_in;
using spec::connectx::query_xrc_srq_out;
using spec::connectx::srq_state;
using spec::connectx::xrc_srq_context;
using Srq = SharedReceiveQueue;

constexpr std::string_view kXrcSrqSection = "mlx5 driver interface 7.6";

CommandResult check_context(DriverState& driver, util::View<create_xrc_srq_in> in) {
  const auto context = in.get(create_xrc_srq_in::xrc_srq_context_entry);
  if (!driver.resources().xrcds().contains(Xrcd(context.get(xrc_srq_context::xrcd)))) {
    return refuse(Status::BAD_RESOURCE, kXrcSrqSection, "unknown XRC domain");
  }
  if (driver.completion_queues().find(Cqn(context.get(xrc_srq_context::cqn))) == nullptr) {
    return refuse(Status::BAD_RESOURCE, kXrcSrqSection, "unknown CQ");
  }
  return {};
}

Srq* find_xrc_srq(DriverState& driver, Srqn number) {
  auto* srq = driver.rdma().shared_queues().find(number);
  return srq != nullptr && srq->attributes().kind == Srq::Kind::kXrc ? srq : nullptr;
}

CommandResult unknown_xrc_srq() {
  return refuse(Status::BAD_RESOURCE, kXrcSrqSection, "unknown XRC SRQ");
}

QueuePlace place_of(util::View<create_xrc_srq_in> in, const Srq::Attributes& attributes,
                    std::span<const std::byte> pas) {
  const auto context = in.get(create_xrc_srq_in::xrc_srq_context_entry);
  auto place = place_of_srq(context, attributes, pas);
  place.set_umem(in.get(create_xrc_srq_in::xrc_srq_umem_valid) != 0,
                 in.get(create_xrc_srq_in::xrc_srq_umem_id),
                 in.get(create_xrc_srq_in::xrc_srq_umem_offset));
  place.set_dbr_umem(context.get(xrc_srq_context::dbr_umem_valid) != 0,
                     context.get(xrc_srq_context::dbr_umem_id));
  return place;
}

}  // namespace

CommandResult create_xrc_srq(DriverState& driver, const Command& command) {
  const auto in = command.input<create_xrc_srq_in>();
  if (auto checked = check_context(driver, in); !checked) return checked;
  const auto context = in.get(create_xrc_srq_in::xrc_srq_context_entry);

  Srq::Attributes attributes;
  attributes.kind = Srq::Kind::kXrc;
  attributes.serves_xrc = true;
  take_srq_layout(context, context.get(xrc_srq_context::log_xrc_srq_size), attributes);
  if (auto checked = check_srq_layout(driver, attributes); !checked) return checked;
  attributes.cqn = Cqn(context.get(xrc_srq_context::cqn));
  if (context.get(xrc_srq_context::user_index_equal_xrc_srqn) == 0) {
    attributes.user_index = context.get(xrc_srq_context::user_index);
  }
  attributes.xrcd = Xrcd(context.get(xrc_srq_context::xrcd));
  auto mapped = driver.queue_mapper().map(
      place_of(in, attributes, command.in_tail(create_xrc_srq_in::kSize)), kXrcSrqSection);
  if (!mapped) return tl::unexpected(mapped.error());
  attributes.queue = *std::move(mapped);
  attributes.cq_use = driver.completion_queues().find(attributes.cqn)->use();
  attributes.xrcd_use = driver.resources().xrcds().use(attributes.xrcd);
  std::ranges::copy(context.bytes(), attributes.context.begin());
  auto* srq = driver.rdma().shared_queues().add(std::move(attributes));
  if (srq == nullptr) {
    return refuse(Status::EXCEED_LIM, kXrcSrqSection, "all SRQ numbers are in use");
  }
  driver.rdma().shared_queues().arm(*srq,
                                    static_cast<std::uint16_t>(context.get(xrc_srq_context::lwm)));
  command.output<create_xrc_srq_out>().set(create_xrc_srq_out::xrc_srqn, srq->number().value());
  return {};
}

CommandResult destroy_xrc_srq(DriverState& driver, const Command& command) {
  auto* srq = find_xrc_srq(
      driver, Srqn(command.input<destroy_xrc_srq_in>().get(destroy_xrc_srq_in::xrc_srqn)));
  if (srq == nullptr) return unknown_xrc_srq();
  if (srq->in_use()) return refuse(Status::BAD_RES_STATE, kXrcSrqSection, "QPs use the SRQ");
  driver.rdma().shared_queues().remove(*srq);
  return {};
}

CommandResult query_xrc_srq(DriverState& driver, const Command& command) {
  auto* srq =
      find_xrc_srq(driver, Srqn(command.input<query_xrc_srq_in>().get(query_xrc_srq_in::xrc_srqn)));
  if (srq == nullptr) return unknown_xrc_srq();
  const auto& attributes = srq->attributes();
  const auto out =
      command.output<query_xrc_srq_out>().sub(query_xrc_srq_out::xrc_srq_context_entry);
  std::ranges::copy(std::span(attributes.context).first(xrc_srq_context::kSize),
                    out.bytes().begin());
  const auto state = srq->failed() ? srq_state::ERROR_STATE : srq_state::GOOD;
  out.set(xrc_srq_context::state, static_cast<std::uint32_t>(state));
  out.set(xrc_srq_context::lwm, srq->limit());
  write_page_list(command.out.subspan(query_xrc_srq_out::kSize),
                  attributes.queue.reported(attributes.queue.memory.pages()));
  return {};
}

CommandResult arm_xrc_srq(DriverState& driver, const Command& command) {
  const auto in = command.input<arm_xrc_srq_in>();
  // Drivers set op_mod, but the opcode alone determines the operation.
  constexpr auto kXrcSrq = static_cast<std::uint16_t>(spec::connectx::arm_xrc_srq_op_mod::XRC_SRQ);
  if (command.op_mod > kXrcSrq) {
    return refuse(Status::BAD_OP, kXrcSrqSection, "op_mod is neither 0 nor XRC_SRQ");
  }
  auto* srq = find_xrc_srq(driver, Srqn(in.get(arm_xrc_srq_in::xrc_srqn)));
  if (srq == nullptr) return unknown_xrc_srq();
  if (srq->failed()) {
    return refuse(Status::BAD_RESOURCE_STATE, kXrcSrqSection, "the SRQ is in error");
  }
  driver.rdma().shared_queues().arm(*srq, static_cast<std::uint16_t>(in.get(arm_xrc_srq_in::lwm)));
  return {};
}

}  // namespace softhca::connectx
