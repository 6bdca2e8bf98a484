// CREATE_UCTX, DESTROY_UCTX (mlx5 driver interface 7.11).

#include "connectx/base/resources.h"
#include "connectx/base/user_contexts.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {

namespace {

constexpr std::string_view kUctxSection = "mlx5 driver interface: DevX";
/// Cost of searching for numbers that a context still owns (util::WorkBudget).
constexpr std::int64_t kUctxLookWork = 20'000;

/// Frees the context's numbers of one kind that are no longer in use.
template <class Number, class Pool>
void free_left(UserContexts& contexts, Uid uid, Owned kind, Pool& pool) {
  for (const auto value : contexts.owned(kind, uid)) {
    const Number number(value);
    if (!pool.contains(number) || pool.is_used(number)) continue;
    pool.free(number);
    contexts.forget(kind, value);
  }
}

}  // namespace

CommandResult create_uctx(DriverState& driver, const Command& command) {
  using In = spec::connectx::create_uctx_in;
  using Out = spec::connectx::create_uctx_out;
  constexpr auto kKnown = static_cast<std::uint32_t>(spec::connectx::uctx_cap_bit::RAW_TX);
  const auto capabilities = command.input<In>().get(In::uctx).get(spec::connectx::uctx::cap);
  if ((capabilities & ~kKnown) != 0) {
    return refuse(Status::BAD_PARAM, kUctxSection, "a bit of cap that uctx_cap does not have");
  }
  const auto uid = driver.resources().user_contexts().create(capabilities);
  if (!uid) return refuse(Status::NO_RESOURCES, kUctxSection, "all user contexts are in use");
  command.output<Out>().set(Out::uid, uid->value());
  return {};
}

CommandResult destroy_uctx(DriverState& driver, const Command& command) {
  using In = spec::connectx::destroy_uctx_in;
  auto& contexts = driver.resources().user_contexts();
  const Uid uid(static_cast<std::uint16_t>(command.input<In>().get(In::uid)));
  if (!contexts.contains(uid)) return refuse(Status::BAD_RESOURCE, kUctxSection, "unknown uid");
  // Drivers first destroy the objects one by one. They try to free a doorbell page only once and
  // ignore the result, so pages that were in use at that time are left.
  if (contexts.objects(uid) != 0) {
    auto& resources = driver.resources();
    command.work.charge(kUctxLookWork);
    free_left<UarPage>(contexts, uid, Owned::UAR, resources.uars());
    free_left<Pd>(contexts, uid, Owned::PD, resources.pds());
    free_left<TransportDomain>(contexts, uid, Owned::TRANSPORT_DOMAIN,
                               resources.transport_domains());
    free_left<Xrcd>(contexts, uid, Owned::XRCD, resources.xrcds());
  }
  if (contexts.objects(uid) != 0) {
    return refuse(Status::BAD_RES_STATE, kUctxSection, "the context has objects");
  }
  contexts.destroy(uid);
  return {};
}

}  // namespace softhca::connectx
