// ALLOC_FLOW_COUNTER, DEALLOC_FLOW_COUNTER, QUERY_FLOW_COUNTER (PRM 12.14.12 to 12.14.14).
#include <cstdint>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/steering/flow_table.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/vport.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

/// Cost of one counter in a query (util::WorkBudget).
constexpr std::int64_t kCounterReadWork = 10;

/// Reads the counters that the sender of a command may read. Counters of other owners, and those
/// that are not allocated, are "unknown" (PRM Table 456) and read as zero.
class Reader {
 public:
  Reader(DriverState& driver, Uid uid)
      : counters_(driver.ethernet().steering().counters()),
        contexts_(driver.resources().user_contexts()),
        uid_(uid) {}

  void read(FlowCounterId id, util::MutableView<traffic_counter> out) const {
    const auto* counter = counters_.find(id);
    if (counter == nullptr || !may_read(id)) return;
    out.set(traffic_counter::packets, counter->packets());
    out.set(traffic_counter::octets, counter->octets());
  }

 private:
  bool may_read(FlowCounterId id) const {
    if (uid_ == UserContexts::kKernel) return true;
    const auto owner = contexts_.owner(Owned::FLOW_COUNTER, id.value());
    return owner == uid_ || owner == UserContexts::kShared;
  }

  const FlowSteering::Counters& counters_;
  const UserContexts& contexts_;
  Uid uid_;
};

CommandResult check_bulk(DriverState& driver, std::uint32_t count, std::uint32_t first) {
  constexpr std::uint32_t kAlignment = 4;
  if (count > Limits::count(driver.limits().log_max_flow_counter_bulk)) {
    return refuse(Status::EXCEED_LIM, "PRM 12.14.14",
                  "num_of_counters above log_max_flow_counter_bulk");
  }
  if (first % kAlignment != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 454",
                  "several counters are queried, and flow_counter_id is not aligned to 4");
  }
  return {};
}

}  // namespace

CommandResult alloc_flow_counter(DriverState& driver, const Command& command) {
  using In = alloc_flow_counter_in;
  const auto in = command.input<In>();
  if (in.get(In::flow_counter_bulk) != 0 || in.get(In::flow_counter_bulk_log_size) != 0) {
    return refuse(Status::BAD_PARAM, "mlx5 driver interface",
                  "counters in bulk, but flow_counter_bulk_alloc is not a capability");
  }
  const auto* counter = driver.ethernet().steering().counters().emplace();
  if (counter == nullptr) {
    return refuse(Status::NO_RESOURCES, "PRM 7.11.3.5", "flow counters above max_flow_counter");
  }
  command.output<alloc_flow_counter_out>().set(alloc_flow_counter_out::flow_counter_id,
                                               counter->id().value());
  return {};
}

CommandResult dealloc_flow_counter(DriverState& driver, const Command& command) {
  using In = dealloc_flow_counter_in;
  auto& counters = driver.ethernet().steering().counters();
  const FlowCounterId id(command.input<In>().get(In::flow_counter_id));
  const auto* counter = counters.find(id);
  if (counter == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.14.13", "unknown flow counter");
  }
  if (counter->in_use()) {
    return refuse(Status::BAD_RES_STATE, "PRM 12.14.13", "a flow counts with the flow counter");
  }
  counters.erase(id);
  return {};
}

CommandResult query_flow_counter(DriverState& driver, const Command& command) {
  using In = query_flow_counter_in;
  using Out = query_flow_counter_out;
  const auto in = command.input<In>();
  const auto first = in.get(In::flow_counter_id);
  const auto several = in.get(In::num_of_counters);
  const auto count = several == 0 ? 1 : several;
  if (several != 0) {
    if (auto checked = check_bulk(driver, several, first); !checked) return checked;
  }
  auto list = command.out.subspan(Out::flow_statistics_offset);
  if (list.size() < std::size_t{count} * Out::flow_statistics_size) {
    return refuse(Status::BAD_OUTPUT_LEN, "PRM 12.14.14", "the output ends before its counters");
  }
  auto* const one = driver.ethernet().steering().counters().find(FlowCounterId(first));
  if (several == 0 && one == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.14.14", "unknown flow counter");
  }
  command.work.charge(std::int64_t{count} * kCounterReadWork);
  const Reader reader(driver, Uid(command.uid));
  for (std::uint32_t i = 0; i != count; ++i, list = list.subspan(Out::flow_statistics_size)) {
    reader.read(FlowCounterId(first + i), util::MutableView<traffic_counter>(list));
  }
  // "Valid only when number_of_flow_counter==0."
  if (several == 0 && in.get(In::clear) != 0) one->clear();
  return {};
}

}  // namespace softhca::connectx
