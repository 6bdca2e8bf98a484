// CREATE_RMP, MODIFY_RMP, DESTROY_RMP, QUERY_RMP (PRM 12.13, mlx5 driver interface 7.6).
#include <algorithm>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/qp/rdma.h"
#include "connectx/qp/shared_receive_queue.h"
#include "connectx/queue/work_queue.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/raw_queues.h"

namespace softhca::connectx {

namespace {

using spec::connectx::create_rmp_in;
using spec::connectx::create_rmp_out;
using spec::connectx::destroy_rmp_in;
using spec::connectx::modify_rmp_in;
using spec::connectx::query_rmp_in;
using spec::connectx::query_rmp_out;
using spec::connectx::rmp_bitmask;
using spec::connectx::rmp_context;
using spec::connectx::rmp_state;
using spec::connectx::wq;
using spec::connectx::wq_type;
using Srq = SharedReceiveQueue;

constexpr std::string_view kRmpSection = "mlx5 driver interface 7.6";

constexpr std::uint32_t kReady = static_cast<std::uint32_t>(rmp_state::RDY);

/// Reads the layout of the WQEs from the context.
void set_layout(Srq::Attributes& attributes, util::View<rmp_context> context) {
  const auto queue = context.get(rmp_context::wq);
  attributes.log_size = queue.get(wq::log_wq_sz);
  attributes.log_stride = queue.get(wq::log_wq_stride);
  attributes.cyclic = wq_type(queue.get(wq::wq_type)) == wq_type::CYCLIC;
  attributes.bare = attributes.cyclic && context.get(rmp_context::basic_cyclic_rcv_wqe) != 0;
  attributes.wq_signature = queue.get(wq::wq_signature) != 0;
}

CommandResult check_wq(DriverState& driver, util::View<wq> queue, const Srq::Attributes& layout) {
  const auto type = static_cast<wq_type>(queue.get(wq::wq_type));
  if (type != wq_type::LINKED_LIST && type != wq_type::CYCLIC) {
    return refuse(Status::BAD_PARAM, kRmpSection, "an RMP is a linked list, or cyclic");
  }
  if (queue.get(wq::log_wq_sz) > driver.limits().log_max_srq_sz) {
    return refuse(Status::EXCEED_LIM, kRmpSection, "log_wq_sz is above log_max_srq_sz");
  }
  const auto log_stride = layout.log_stride;
  const bool alone = layout.bare && !layout.wq_signature;
  if (log_stride < (alone ? Srq::kLogStrideMinBare : Srq::kLogStrideMin)) {
    return refuse(Status::BAD_PARAM, kRmpSection, "log_wq_stride has no room for a WQE");
  }
  if (Limits::count(log_stride) > driver.limits().max_wqe_sz_rq) {
    return refuse(Status::EXCEED_LIM, kRmpSection, "log_wq_stride is above max_wqe_sz_rq");
  }
  if (!driver.resources().pds().contains(Pd(queue.get(wq::pd)))) {
    return refuse(Status::BAD_RESOURCE, kRmpSection, "unknown PD");
  }
  return {};
}

Srq* find_rmp(DriverState& driver, Srqn rmpn) {
  auto* srq = driver.rdma().shared_queues().find(rmpn);
  return srq != nullptr && srq->attributes().kind == Srq::Kind::kRmp ? srq : nullptr;
}

CommandResult unknown_rmp() { return refuse(Status::BAD_RESOURCE, kRmpSection, "unknown RMP"); }

}  // namespace

CommandResult create_rmp(DriverState& driver, const Command& command) {
  const auto context = command.input<create_rmp_in>().get(create_rmp_in::rmp_context);
  if (context.get(rmp_context::state) != kReady) {
    return refuse(Status::BAD_PARAM, "PRM Table 65", "an RMP is created in state RDY");
  }
  const auto queue = context.get(rmp_context::wq);
  Srq::Attributes attributes;
  attributes.kind = Srq::Kind::kRmp;
  set_layout(attributes, context);
  if (auto checked = check_wq(driver, queue, attributes); !checked) return checked;
  attributes.pd = Pd(queue.get(wq::pd));
  auto mapped = driver.queue_mapper().map(place_of(queue, command.in_tail(create_rmp_in::kSize)),
                                          kRmpSection);
  if (!mapped) return tl::unexpected(mapped.error());
  attributes.queue = *std::move(mapped);
  attributes.pd_use = driver.resources().pds().use(attributes.pd);
  std::ranges::copy(context.bytes(), attributes.context.begin());
  auto* srq = driver.rdma().shared_queues().add(std::move(attributes));
  if (srq == nullptr) return refuse(Status::EXCEED_LIM, kRmpSection, "all SRQ numbers are in use");
  driver.rdma().shared_queues().arm(*srq, static_cast<std::uint16_t>(queue.get(wq::lwm)));
  command.output<create_rmp_out>().set(create_rmp_out::rmpn, srq->number().value());
  return {};
}

CommandResult modify_rmp(DriverState& driver, const Command& command) {
  const auto in = command.input<modify_rmp_in>();
  auto* srq = find_rmp(driver, Srqn(in.get(modify_rmp_in::rmpn)));
  if (srq == nullptr) return unknown_rmp();
  if (srq->failed()) {
    return refuse(Status::BAD_RESOURCE_STATE, kRmpSection, "the RMP is in error");
  }
  if (in.get(modify_rmp_in::rmp_state) != kReady) {
    return refuse(Status::BAD_RESOURCE_STATE, "PRM 12.13.2", "rmp_state is not the RMP's state");
  }
  const auto context = in.get(modify_rmp_in::rmp_context);
  if (context.get(rmp_context::state) != kReady) {
    return refuse(Status::BAD_PARAM, "PRM Table 66", "an RMP goes from RDY to RDY only");
  }
  // Only the limit can be changed.
  const auto mask = in.get(modify_rmp_in::modify_bitmask);
  if (has_unknown_bits(mask, rmp_bitmask::lwm)) {
    return refuse(Status::BAD_PARAM, "PRM 12.13.2", "modify_bitmask has unknown bits");
  }
  if (mask.get(rmp_bitmask::lwm) != 0) {
    const auto queue = context.get(rmp_context::wq);
    driver.rdma().shared_queues().arm(*srq, static_cast<std::uint16_t>(queue.get(wq::lwm)));
  }
  return {};
}

CommandResult destroy_rmp(DriverState& driver, const Command& command) {
  auto* srq = find_rmp(driver, Srqn(command.input<destroy_rmp_in>().get(destroy_rmp_in::rmpn)));
  if (srq == nullptr) return unknown_rmp();
  if (srq->in_use()) return refuse(Status::BAD_RES_STATE, kRmpSection, "QPs use the RMP");
  driver.rdma().shared_queues().remove(*srq);
  return {};
}

CommandResult query_rmp(DriverState& driver, const Command& command) {
  auto* srq = find_rmp(driver, Srqn(command.input<query_rmp_in>().get(query_rmp_in::rmpn)));
  if (srq == nullptr) return unknown_rmp();
  const auto out = command.output<query_rmp_out>().sub(query_rmp_out::rmp_context);
  const auto& attributes = srq->attributes();
  std::ranges::copy(std::span(attributes.context).first(rmp_context::kSize), out.bytes().begin());
  const auto state = srq->failed() ? rmp_state::ERR : rmp_state::RDY;
  out.set(rmp_context::state, static_cast<std::uint32_t>(state));
  const auto queue = out.sub(rmp_context::wq);
  queue.set(wq::lwm, srq->limit());
  queue.set(wq::hw_counter, srq->chain().consumed());
  write_page_list(command.out.subspan(query_rmp_out::kSize),
                  attributes.queue.reported(attributes.queue.memory.pages()));
  return {};
}

}  // namespace softhca::connectx
