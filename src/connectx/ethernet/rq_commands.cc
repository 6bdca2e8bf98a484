// CREATE_RQ, MODIFY_RQ, DESTROY_RQ, QUERY_RQ (PRM 12.11).
#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/event/completion_queue.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

constexpr std::uint64_t bit(modify_rq_bit number) {
  return std::uint64_t{1} << static_cast<unsigned>(number);
}

CommandResult check_context(DriverState& driver, util::View<rq_context> context) {
  if (rq_state(context.get(rq_context::state)) != rq_state::RST) {
    return refuse(Status::BAD_PARAM, "PRM Table 53", "an RQ is created in state RST");
  }
  if (mem_rq_type(context.get(rq_context::mem_rq_type)) != mem_rq_type::MEMORY_RQ_INLINE) {
    return refuse(Status::BAD_PARAM, "PRM Table 53",
                  "an Ethernet RQ with a receive memory pool is not implemented");
  }
  if (context.get(rq_context::hairpin) != 0 || context.get(rq_context::delay_drop_en) != 0 ||
      context.get(rq_context::scatter_fcs) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 53",
                  "hairpin, delay_drop_en and scatter_fcs are not capabilities");
  }
  // RQs implement END_PAD_ALIGN, because drivers request it without checking HCA_CAP.end_pad. The
  // capability stays 0, because it also covers QPs, which do not implement it.
  const auto padding = end_padding_mode(context.get(rq_context::wq).get(wq::end_padding_mode));
  if (padding != end_padding_mode::END_PAD_NONE && padding != end_padding_mode::END_PAD_ALIGN) {
    return refuse(Status::BAD_PARAM, "PRM Table 55", "unknown end_padding_mode");
  }
  if (driver.completion_queues().find(Cqn(context.get(rq_context::cqn))) == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.11.1", "unknown CQ");
  }
  return {};
}

/// True for the transitions of PRM Table 56, and for those from any state to ERR, which drivers of
/// raw packet QPs use.
bool transition_exists(rq_state from, rq_state to) {
  switch (to) {
    case rq_state::RST:
    case rq_state::ERR:
      return true;
    case rq_state::RDY:
      return from != rq_state::ERR;
  }
  return false;
}

CommandResult check_mask(std::uint64_t mask, rq_state next, util::View<rq_context> context) {
  constexpr auto known = bit(modify_rq_bit::VLAN_STRIP_DISABLE) | bit(modify_rq_bit::SCATTER_FCS) |
                         bit(modify_rq_bit::RQ_COUNTER_SET_ID);
  if ((mask & ~known) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 56", "modify_bitmask has unknown bits");
  }
  if ((mask & bit(modify_rq_bit::VLAN_STRIP_DISABLE)) != 0 && next != rq_state::RDY) {
    return refuse(Status::BAD_PARAM, "PRM Table 56", "vsd changes only in RST2RDY and RDY2RDY");
  }
  if ((mask & bit(modify_rq_bit::SCATTER_FCS)) != 0 && context.get(rq_context::scatter_fcs) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 56", "scatter_fcs is not a capability");
  }
  return {};
}

}  // namespace

CommandResult create_rq(DriverState& driver, const Command& command) {
  const auto context = command.input<create_rq_in>().get(create_rq_in::rq_context);
  if (auto checked = check_context(driver, context); !checked) return checked;
  auto wq = driver.work_queue_maker().make_receive(
      context.get(rq_context::wq),
      command.in_tail(create_rq_in::rq_context.kOffset + rq_context::wq.kOffset + wq::pas_offset));
  if (!wq) return tl::unexpected(wq.error());
  auto& cq = *driver.completion_queues().find(Cqn(context.get(rq_context::cqn)));
  auto* rq = driver.ethernet().add_rq(context, *std::move(wq), cq);
  if (rq == nullptr) return refuse(Status::NO_RESOURCES, "PRM 7.7", "no queue number left");
  command.output<create_rq_out>().set(create_rq_out::rqn, rq->rqn().value());
  return {};
}

CommandResult modify_rq(DriverState& driver, const Command& command) {
  const auto in = command.input<modify_rq_in>();
  auto* rq = driver.ethernet().receive_queues().find(Rqn(in.get(modify_rq_in::rqn)));
  if (rq == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.11.2", "unknown RQ");
  if (rq_state(in.get(modify_rq_in::rq_state)) != rq->state()) {
    return refuse(Status::BAD_RESOURCE_STATE, "PRM 12.11.2", "rq_state is not the RQ's state");
  }
  const auto context = in.get(modify_rq_in::rq_context);
  const auto next = rq_state(context.get(rq_context::state));
  if (!transition_exists(rq->state(), next)) {
    return refuse(Status::BAD_RESOURCE_STATE, "PRM Table 56", "no such transition");
  }
  const auto mask = in.get(modify_rq_in::modify_bitmask);
  if (auto checked = check_mask(mask, next, context); !checked) return checked;
  if ((mask & bit(modify_rq_bit::VLAN_STRIP_DISABLE)) != 0) {
    rq->set_vlan_strip_disable(context.get(rq_context::vlan_strip_disable) != 0);
  }
  if ((mask & bit(modify_rq_bit::RQ_COUNTER_SET_ID)) != 0) {
    rq->set_counter_set(CounterSetId(context.get(rq_context::counter_set_id)));
  }
  rq->set_state(next);
  driver.ethernet().schedule_flush(*rq);
  return {};
}

CommandResult destroy_rq(DriverState& driver, const Command& command) {
  const Rqn rqn(command.input<destroy_rq_in>().get(destroy_rq_in::rqn));
  auto& queues = driver.ethernet().receive_queues();
  auto* rq = queues.find(rqn);
  if (rq == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.11.3", "unknown RQ");
  if (rq->in_use()) {
    return refuse(Status::BAD_RES_STATE, "PRM 12.11.3", "a TIR or RQT points to the RQ");
  }
  rq->drop_held();
  queues.erase(rqn);
  return {};
}

CommandResult query_rq(DriverState& driver, const Command& command) {
  const Rqn rqn(command.input<query_rq_in>().get(query_rq_in::rqn));
  auto* rq = driver.ethernet().receive_queues().find(rqn);
  if (rq == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.11.4", "unknown RQ");
  rq->write_context(command.output<query_rq_out>().sub(query_rq_out::rq_context));
  return {};
}

}  // namespace softhca::connectx
