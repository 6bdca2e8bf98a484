// CREATE_SQ, MODIFY_SQ, DESTROY_SQ, QUERY_SQ (PRM 12.10).
#include <algorithm>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/send_queue.h"
#include "connectx/event/completion_queue.h"
#include "connectx/function/capabilities.h"
#include "connectx/port/vport.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

constexpr auto kPacingIndexBit =
    std::uint64_t{1} << static_cast<unsigned>(modify_sq_bit::PACKET_PACING_RATE_LIMIT_INDEX);

CommandResult check_context(DriverState& driver, util::View<sq_context> context) {
  if (sq_state(context.get(sq_context::state)) != sq_state::RST) {
    return refuse(Status::BAD_PARAM, "PRM Table 61", "an SQ is created in state RST");
  }
  if (context.get(sq_context::hairpin) != 0 || context.get(sq_context::reg_umr) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 61", "hairpin and reg_umr are not capabilities");
  }
  const auto inline_mode = context.get(sq_context::min_wqe_inline_mode);
  if (!Vport::is_inline_mode(inline_mode)) {
    return refuse(Status::BAD_PARAM, "PRM 7.9.3.1", "min_wqe_inline_mode 4 is reserved");
  }
  if (inline_mode < driver.vport().min_inline_mode()) {
    return refuse(Status::BAD_PARAM, "PRM 7.9.3",
                  "min_wqe_inline_mode of the SQ below that of the vport");
  }
  if (driver.completion_queues().find(Cqn(context.get(sq_context::cqn))) == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.10.1", "unknown CQ");
  }
  // The internal control queues of mlx5, which only execute NOPs, have no TIS.
  const auto tises = context.get(sq_context::tis_lst_sz);
  if (tises > Limits::count(driver.limits().log_max_tis_per_sq)) {
    return refuse(Status::EXCEED_LIM, "PRM Table 61",
                  "more than log_max_tis_per_sq allows: one TIS");
  }
  if (tises == 1 &&
      driver.ethernet().tiss().find(Tisn(context.get(sq_context::tis_num))) == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.10.1", "unknown TIS");
  }
  if (context.get(sq_context::packet_pacing_rate_limit_index) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 61", "packet pacing is not a capability");
  }
  return {};
}

/// Makes the SQ require inline L2 headers. PRM 7.9.3: with wqe_inline_mode 0, every SQ requires
/// them, even if its context does not.
void demand_inline_headers(DriverState& driver, util::MutableView<sq_context> context) {
  constexpr std::uint32_t kModeL2 = 0;  // of wqe_inline_mode
  constexpr auto kL2 = static_cast<std::uint32_t>(min_wqe_inline_mode::L2);
  const auto caps = driver.capabilities().current(hca_cap_type::ETHERNET_OFFLOADS);
  const auto mode = util::View<eth_offload_cap>(caps).get(eth_offload_cap::wqe_inline_mode);
  if (mode != kModeL2 || context.get(sq_context::min_wqe_inline_mode) >= kL2) return;
  context.set(sq_context::min_wqe_inline_mode, kL2);
}

/// True for the transitions of PRM Table 62, and for those from any state to ERR, which drivers of
/// raw packet QPs use.
bool transition_exists(sq_state from, sq_state to) {
  switch (to) {
    case sq_state::RST:
    case sq_state::ERR:
      return true;
    case sq_state::RDY:
      return from != sq_state::ERR;
  }
  return false;
}

}  // namespace

CommandResult create_sq(DriverState& driver, const Command& command) {
  const auto context = command.input<create_sq_in>().get(create_sq_in::sq_context);
  if (auto checked = check_context(driver, context); !checked) return checked;
  auto wq = driver.work_queue_maker().make_send(
      context.get(sq_context::wq),
      command.in_tail(create_sq_in::sq_context.kOffset + sq_context::wq.kOffset + wq::pas_offset));
  if (!wq) return tl::unexpected(wq.error());
  auto* tis = context.get(sq_context::tis_lst_sz) == 0
                  ? nullptr
                  : driver.ethernet().tiss().find(Tisn(context.get(sq_context::tis_num)));
  auto& cq = *driver.completion_queues().find(Cqn(context.get(sq_context::cqn)));
  util::Struct<sq_context> own;
  std::ranges::copy(context.bytes(), own.bytes().begin());
  demand_inline_headers(driver, own);
  auto* sq = driver.ethernet().add_sq(own, *std::move(wq), cq, tis);
  if (sq == nullptr) return refuse(Status::NO_RESOURCES, "PRM 7.9", "no queue number left");
  command.output<create_sq_out>().set(create_sq_out::sqn, sq->sqn().value());
  return {};
}

CommandResult modify_sq(DriverState& driver, const Command& command) {
  const auto in = command.input<modify_sq_in>();
  auto* sq = driver.ethernet().send_queues().find(Sqn(in.get(modify_sq_in::sqn)));
  if (sq == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.10.2", "unknown SQ");
  if (sq_state(in.get(modify_sq_in::sq_state)) != sq->state()) {
    return refuse(Status::BAD_RESOURCE_STATE, "PRM 12.10.2", "sq_state is not the SQ's state");
  }
  const auto context = in.get(modify_sq_in::sq_context);
  const auto next = sq_state(context.get(sq_context::state));
  if (!transition_exists(sq->state(), next)) {
    return refuse(Status::BAD_RESOURCE_STATE, "PRM Table 62", "no such transition");
  }
  const auto mask = in.get(modify_sq_in::modify_bitmask);
  if ((mask & ~kPacingIndexBit) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 62", "modify_bitmask has unknown bits");
  }
  if ((mask & kPacingIndexBit) != 0 &&
      context.get(sq_context::packet_pacing_rate_limit_index) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 62", "packet pacing is not a capability");
  }
  sq->set_state(next);
  driver.ethernet().schedule(*sq);
  return {};
}

CommandResult destroy_sq(DriverState& driver, const Command& command) {
  const Sqn sqn(command.input<destroy_sq_in>().get(destroy_sq_in::sqn));
  auto& queues = driver.ethernet().send_queues();
  auto* sq = queues.find(sqn);
  if (sq == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.10.3", "unknown SQ");
  sq->drop_held();
  queues.erase(sqn);
  return {};
}

CommandResult query_sq(DriverState& driver, const Command& command) {
  auto* sq =
      driver.ethernet().send_queues().find(Sqn(command.input<query_sq_in>().get(query_sq_in::sqn)));
  if (sq == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.10.4", "unknown SQ");
  sq->write_context(command.output<query_sq_out>().sub(query_sq_out::sq_context));
  return {};
}

}  // namespace softhca::connectx
