// CREATE_TIS, MODIFY_TIS, DESTROY_TIS, QUERY_TIS (PRM 12.9).
#include <optional>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/send_queue.h"
#include "connectx/ethernet/transport_interface.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

/// Costs of checking an SQ, and of skipping a number that is no SQ (util::WorkBudget). QPs and RQs
/// have numbers of the same space, so the numbers of a few SQs can lie far apart.
constexpr std::int64_t kTisLookWork = 10;
constexpr std::int64_t kPlaceWork = 2;

/// True if an SQ of the TIS is ready. Nothing if `work` is spent before all are looked at: the next
/// call continues.
std::optional<bool> has_ready_queue(Device& device, Tis& tis, util::WorkBudget& work) {
  if (!tis.in_use()) return false;
  auto& queues = device.ethernet().send_queues();
  for (auto& look = tis.look; look.next != queues.end(); ++look.next) {
    if (work.spent()) return std::nullopt;
    work.charge(kPlaceWork);
    const auto* sq = queues.find(Sqn(look.next));
    if (sq == nullptr) continue;
    work.charge(kTisLookWork);
    look.found = look.found || (sq->tis() == &tis && sq->state() == sq_state::RDY);
  }
  return std::exchange(tis.look, {}).found;
}

}  // namespace

CommandResult create_tis(Device& device, const Command& command) {
  const auto context = command.input<create_tis_in>().get(create_tis_in::tis_context);
  if (context.get(tis_context::tls_en) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 50", "tls_en is not a capability");
  }
  auto& domains = device.resources().transport_domains();
  const TransportDomain domain(context.get(tis_context::transport_domain));
  if (!domains.contains(domain)) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.9.1", "unknown transport domain");
  }
  auto* tis = device.ethernet().tiss().emplace();
  if (tis == nullptr) return refuse(Status::NO_RESOURCES, "PRM 7.6", "no TIS left");
  tis->context = context;
  tis->domain_use = domains.use(domain);
  command.output<create_tis_out>().set(create_tis_out::tisn, tis->number.value());
  return {};
}

CommandResult modify_tis(Device& device, const Command& command) {
  const auto in = command.input<modify_tis_in>();
  auto* tis = device.ethernet().tiss().find(Tisn(in.get(modify_tis_in::tisn)));
  if (tis == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.9.2", "unknown TIS");
  const auto mask = in.get(modify_tis_in::modify_bitmask);
  using Mask = modify_tis_bitmask;
  if (has_unknown_bits(mask, Mask::prio, Mask::lag_tx_port_affinity,
                       Mask::strict_lag_tx_port_affinity)) {
    return refuse(Status::BAD_PARAM, "PRM Table 51", "modify_bitmask has unknown bits");
  }
  if (mask.get(Mask::lag_tx_port_affinity) != 0 ||
      mask.get(Mask::strict_lag_tx_port_affinity) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 51", "LAG is not a capability");
  }
  const auto ready = has_ready_queue(device, *tis, command.work);
  if (!ready) {
    command.unfinished = true;
    return {};
  }
  if (*ready) {
    return refuse(Status::BAD_RES_STATE, "PRM 12.9.2", "an SQ of the TIS is in state RDY");
  }
  if (mask.get(Mask::prio) != 0) {
    const auto context = in.get(modify_tis_in::tis_context);
    tis->context.view().set(tis_context::prio, context.get(tis_context::prio));
  }
  return {};
}

CommandResult destroy_tis(Device& device, const Command& command) {
  const Tisn tisn(command.input<destroy_tis_in>().get(destroy_tis_in::tisn));
  auto* tis = device.ethernet().tiss().find(tisn);
  if (tis == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.9.3", "unknown TIS");
  if (tis->in_use()) return refuse(Status::BAD_RES_STATE, "PRM 12.9.3", "an SQ uses the TIS");
  device.ethernet().tiss().erase(tisn);
  return {};
}

CommandResult query_tis(Device& device, const Command& command) {
  auto* tis =
      device.ethernet().tiss().find(Tisn(command.input<query_tis_in>().get(query_tis_in::tisn)));
  if (tis == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.9.4", "unknown TIS");
  tis->context.copy_to(command.output<query_tis_out>().sub(query_tis_out::tis_context));
  return {};
}

}  // namespace softhca::connectx
