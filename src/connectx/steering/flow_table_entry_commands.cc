// SET_FLOW_TABLE_ENTRY, QUERY_FLOW_TABLE_ENTRY, DELETE_FLOW_TABLE_ENTRY (PRM 12.14.9 to 12.14.11).
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/steering/flow_table.h"
#include "connectx/steering/flow_table_type.h"
#include "spec/connectx/flow_table.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

constexpr std::uint16_t kForward = static_cast<std::uint16_t>(flow_action::FWD_DEST);
constexpr std::uint16_t kCount = static_cast<std::uint16_t>(flow_action::COUNT);
constexpr std::uint16_t kExclusive = static_cast<std::uint16_t>(flow_action::ALLOW) |
                                     static_cast<std::uint16_t>(flow_action::DROP) | kForward;

constexpr std::uint32_t bit(set_fte_modify_bit number) {
  return 1u << static_cast<unsigned>(number);
}

constexpr auto kModifiable = bit(set_fte_modify_bit::ACTION) | bit(set_fte_modify_bit::FLOW_TAG) |
                             bit(set_fte_modify_bit::DESTINATION_LIST) |
                             bit(set_fte_modify_bit::FLOW_COUNTERS);

CommandResult check_action(std::uint16_t action) {
  if ((action & ~(kExclusive | kCount)) != 0) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.2.2",
                  "an action that is not a capability (reformat, header changes)");
  }
  if (!std::has_single_bit(static_cast<std::uint16_t>(action & kExclusive))) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.2.2", "not exactly one of allow, drop and forward");
  }
  return {};
}

bool is_of_transmit(const FlowTable& table) {
  return table.attributes().type == flow_table_type::NIC_TX;
}

CommandResult use_destination(DriverState& driver, const FlowTable& table,
                              FlowDestination& destination) {
  if (is_of_transmit(table) && destination.type != destination_type::FLOW_TABLE) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.4.2",
                  "destination of NIC transmit tables other than flow table");
  }
  switch (destination.type) {
    case destination_type::TIR: {
      auto* tir = driver.ethernet().tirs().find(Tirn(destination.id));
      if (tir == nullptr) {
        return refuse(Status::BAD_RESOURCE, "PRM 12.14.9", "unknown TIR as destination");
      }
      destination.use = tir->use();
      return {};
    }
    case destination_type::FLOW_TABLE: {
      auto* next =
          driver.ethernet().steering().find(table.attributes().type, FlowTableId(destination.id));
      if (next == nullptr) {
        return refuse(Status::BAD_RESOURCE, "PRM 12.14.9", "unknown flow table as destination");
      }
      if (next->attributes().level <= table.attributes().level) {
        return refuse(Status::BAD_PARAM, "PRM 7.11.3.3",
                      "the destination table does not have a higher level");
      }
      destination.use = next->use();
      return {};
    }
    default:
      return refuse(Status::BAD_PARAM, "PRM 7.11.4.1",
                    "destination of NIC receive tables other than flow table and TIR");
  }
}

/// Checks the rules of PRM 7.11.3.3 for a flow with several destinations (tables or TIRs). The last
/// table may have any level, since nic_rx_multi_path_tirs is 1.
CommandResult check_paths(DriverState& driver, const FlowTable& table,
                          std::span<const FlowDestination> list) {
  constexpr std::uint8_t kFirstOfPaths = 64;
  if (list.size() == 1) return {};
  if (table.attributes().level >= kFirstOfPaths) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.3",
                  "several destinations of a flow in a table of level 64 or more");
  }
  const FlowTable* before = nullptr;
  for (const auto& destination : list) {
    if (destination.type != destination_type::FLOW_TABLE) continue;
    if (before != nullptr && before->attributes().level < kFirstOfPaths) {
      return refuse(Status::BAD_PARAM, "PRM 7.11.3.3",
                    "a table below level 64 that is one of several destinations, and not the last");
    }
    before =
        driver.ethernet().steering().find(table.attributes().type, FlowTableId(destination.id));
  }
  return {};
}

tl::expected<FlowDestinations, Refusal> read_destinations(DriverState& driver,
                                                          const FlowTable& table,
                                                          util::View<flow_context> context,
                                                          std::span<const std::byte> list) {
  const auto count = context.get(flow_context::destination_list_size);
  if (count == 0) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.6", "forward without destination");
  }
  if (count > Limits::count(driver.limits().log_max_destination)) {
    return refuse(Status::EXCEED_LIM, "PRM 7.11.3.6",
                  "destination_list_size above log_max_destination");
  }
  if (is_of_transmit(table) && count > 1) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.4.2",
                  "several destinations of a packet that is sent");
  }
  if (list.size() < std::size_t{count} * flow_context::destination_size) {
    return refuse(Status::BAD_INPUT_LEN, "PRM 12.14.9", "the input ends before its destinations");
  }
  auto reservation = driver.ethernet().steering().destinations().reserve(count);
  if (!reservation) {
    return refuse(Status::NO_RESOURCES, "PRM 7.11.3.6", "too many destinations of all flows");
  }
  FlowDestinations destinations{.list = std::vector<FlowDestination>(count),
                                .reservation = *std::move(reservation)};
  for (auto& destination : destinations.list) {
    const util::View<dest_format> entry(list);
    list = list.subspan(flow_context::destination_size);
    destination.type = destination_type(entry.get(dest_format::destination_type));
    destination.id = entry.get(dest_format::destination_id);
    if (auto used = use_destination(driver, table, destination); !used) {
      return tl::unexpected(used.error());
    }
  }
  if (auto checked = check_paths(driver, table, destinations.list); !checked) {
    return tl::unexpected(checked.error());
  }
  return destinations;
}

tl::expected<FlowCounterList, Refusal> read_counters(DriverState& driver,
                                                     util::View<flow_context> context,
                                                     std::span<const std::byte> list) {
  const auto count = context.get(flow_context::flow_counter_list_size);
  if (count == 0) return refuse(Status::BAD_PARAM, "PRM 7.11.3.6", "counting without counter");
  if (count > Limits::count(driver.limits().log_max_flow_counter)) {
    return refuse(Status::EXCEED_LIM, "PRM 7.11.3.6",
                  "flow_counter_list_size above log_max_flow_counter");
  }
  const auto behind = std::uint64_t{context.get(flow_context::destination_list_size)} *
                      flow_context::destination_size;
  if (list.size() < behind + std::size_t{count} * flow_context::destination_size) {
    return refuse(Status::BAD_INPUT_LEN, "PRM 12.14.9", "the input ends before its flow counters");
  }
  list = list.subspan(behind);
  auto& steering = driver.ethernet().steering();
  auto reservation = steering.destinations().reserve(count);
  if (!reservation) {
    return refuse(Status::NO_RESOURCES, "PRM 7.11.3.6", "too many flow counters of all flows");
  }
  FlowCounterList counters{.list = std::vector<FlowCounterList::Entry>(count),
                           .reservation = *std::move(reservation)};
  for (auto& entry : counters.list) {
    const util::View<flow_counter_list_entry> in(list);
    list = list.subspan(flow_context::destination_size);
    entry.counter =
        steering.counters().find(FlowCounterId(in.get(flow_counter_list_entry::flow_counter_id)));
    if (entry.counter == nullptr) {
      return refuse(Status::BAD_RESOURCE, "PRM 12.14.9", "unknown flow counter in the list");
    }
    entry.use = entry.counter->use();
  }
  return counters;
}

constexpr auto kListOffset =
    set_flow_table_entry_in::flow_context.kOffset + flow_context::destination_offset;

/// Reads the new counters of the flow. `old`: the existing flow, or null.
CommandResult read_counting(DriverState& driver, const Command& command, std::uint32_t fields,
                            Flow* old, Flow& flow) {
  const auto context =
      command.input<set_flow_table_entry_in>().get(set_flow_table_entry_in::flow_context);
  if ((flow.action & kCount) == 0) return {};
  if ((fields & bit(set_fte_modify_bit::FLOW_COUNTERS)) != 0) {
    auto counters = read_counters(driver, context, command.in_tail(kListOffset));
    if (!counters) return tl::unexpected(counters.error());
    flow.counters = *std::move(counters);
    return {};
  }
  if (old == nullptr || old->counters.list.empty()) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.7",
                  "counting is added without modifying the list of flow counters");
  }
  return {};
}

/// Reads the new state of the flow. If the flow exists, `flow` already has its current state
/// without destinations and counters. These stay those of `old` unless the command sets new ones.
CommandResult read_flow(DriverState& driver, const FlowTable& table, const Command& command,
                        std::uint32_t fields, Flow* old, Flow& flow) {
  const auto context =
      command.input<set_flow_table_entry_in>().get(set_flow_table_entry_in::flow_context);
  if ((fields & bit(set_fte_modify_bit::ACTION)) != 0) {
    flow.action = static_cast<std::uint16_t>(context.get(flow_context::action));
  }
  if (auto checked = check_action(flow.action); !checked) return checked;
  if ((flow.action & kCount) != 0 && is_of_transmit(table)) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.5", "a flow counter of packets that are sent");
  }
  if ((fields & bit(set_fte_modify_bit::FLOW_TAG)) != 0) {
    flow.flow_tag = context.get(flow_context::flow_tag);
    if (flow.flow_tag != 0 && is_of_transmit(table)) {
      return refuse(Status::BAD_PARAM, "PRM 7.11.4.2", "a tag of packets that are sent");
    }
  }
  if (context.get(flow_context::extended_destination) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 430", "extended destinations are not a capability");
  }
  if (auto read = read_counting(driver, command, fields, old, flow); !read) return read;
  if ((flow.action & kForward) == 0) return {};
  if ((fields & bit(set_fte_modify_bit::DESTINATION_LIST)) == 0) {
    if (old == nullptr || old->destinations.list.empty()) {
      return refuse(Status::BAD_PARAM, "PRM 7.11.3.7",
                    "forward is added without modifying the destination list");
    }
    return {};
  }
  auto destinations = read_destinations(driver, table, context, command.in_tail(kListOffset));
  if (!destinations) return tl::unexpected(destinations.error());
  flow.destinations = *std::move(destinations);
  return {};
}

/// Moves destinations and counters from the old flow if the command did not set them and the new
/// action uses them.
void keep(Flow& old, Flow& flow) {
  flow.reservation = std::move(old.reservation);
  if ((flow.action & kForward) != 0 && flow.destinations.list.empty()) {
    flow.destinations = std::move(old.destinations);
  }
  if ((flow.action & kCount) != 0 && flow.counters.list.empty()) {
    flow.counters = std::move(old.counters);
  }
}

struct EntryPlace {
  FlowTable* table;
  FlowGroup* group;  ///< null: no group contains this index
};

template <class In>
EntryPlace find_place(DriverState& driver, util::View<In> in) {
  auto* table = driver.ethernet().steering().find(flow_table_type(in.get(In::table_type)),
                                                  FlowTableId(in.get(In::table_id)));
  return {table, table == nullptr ? nullptr : table->group_of(in.get(In::flow_index))};
}

}  // namespace

CommandResult set_flow_table_entry(DriverState& driver, const Command& command) {
  using In = set_flow_table_entry_in;
  using Kind = set_flow_table_entry_op_mod;
  const auto in = command.input<In>();
  const auto kind = Kind(command.op_mod);
  if (kind != Kind::SET && kind != Kind::MODIFY) {
    return refuse(Status::BAD_OP, "PRM Table 428", "unknown op_mod");
  }
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  const auto [table, group] = find_place(driver, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.9", "unknown flow table");
  const auto context = in.get(In::flow_context);
  const auto index = in.get(In::flow_index);
  if (group == nullptr) {
    return refuse(Status::BAD_INDEX, "PRM 7.11.3.6", "flow_index is in no group of the table");
  }
  auto* old = group->find(index);
  auto fields = ~std::uint32_t{0};
  Flow flow;
  flow.index = index;
  if (kind == Kind::SET) {
    // Only a new flow names its group. A modification ignores the field.
    if (context.get(flow_context::group_id) != group->id()) {
      return refuse(Status::BAD_INDEX, "PRM 7.11.3.6", "flow_index outside of the group");
    }
    flow.value = MatchKey::from_bytes(context.get(flow_context::match_value).bytes());
  } else {
    if (old == nullptr) {
      return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.7", "the flow to modify is invalid");
    }
    flow.value = old->value;
    flow.action = old->action;
    flow.flow_tag = old->flow_tag;
    fields = in.get(In::modify_enable_mask);
    if ((fields & ~kModifiable) != 0) {
      return refuse(Status::BAD_PARAM, "PRM 7.11.3.7", "modify_enable_mask has unknown bits");
    }
  }
  if (old == nullptr) {
    auto reservation = driver.ethernet().steering().flows(table->attributes().type).reserve(1);
    if (!reservation) {
      return refuse(Status::NO_RESOURCES, "PRM 7.11.3.6", "flows above log_max_flow");
    }
    flow.reservation = *std::move(reservation);
  }
  if (auto read = read_flow(driver, *table, command, fields, old, flow); !read) return read;
  if (old != nullptr) keep(*old, flow);
  group->set(std::move(flow));
  return {};
}

CommandResult query_flow_table_entry(DriverState& driver, const Command& command) {
  using In = query_flow_table_entry_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  const auto [table, group] = find_place(driver, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.10", "unknown flow table");
  const auto* flow = group == nullptr ? nullptr : group->find(in.get(In::flow_index));
  if (flow == nullptr) return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.9", "invalid flow");
  const auto out =
      command.output<query_flow_table_entry_out>().sub(query_flow_table_entry_out::flow_context);
  out.set(flow_context::group_id, group->id());
  out.set(flow_context::flow_tag, flow->flow_tag);
  out.set(flow_context::action, flow->action);
  out.set(flow_context::destination_list_size,
          static_cast<std::uint32_t>(flow->destinations.list.size()));
  out.set(flow_context::flow_counter_list_size,
          static_cast<std::uint32_t>(flow->counters.list.size()));
  std::memcpy(out.sub(flow_context::match_value).bytes().data(), flow->value.bytes().data(),
              MatchKey::kSize);
  auto list = command.out.subspan(query_flow_table_entry_out::flow_context.kOffset +
                                  flow_context::destination_offset);
  for (const auto& destination : flow->destinations.list) {
    if (list.size() < flow_context::destination_size) break;
    const util::MutableView<dest_format> entry(list);
    entry.set(dest_format::destination_type, static_cast<std::uint32_t>(destination.type));
    entry.set(dest_format::destination_id, destination.id);
    list = list.subspan(flow_context::destination_size);
  }
  for (const auto& counted : flow->counters.list) {
    if (list.size() < flow_context::destination_size) break;
    const util::MutableView<flow_counter_list_entry> entry(list);
    entry.set(flow_counter_list_entry::flow_counter_id, counted.counter->id().value());
    list = list.subspan(flow_context::destination_size);
  }
  return {};
}

CommandResult delete_flow_table_entry(DriverState& driver, const Command& command) {
  using In = delete_flow_table_entry_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  const auto [table, group] = find_place(driver, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.11", "unknown flow table");
  const auto index = in.get(In::flow_index);
  const auto* flow = group == nullptr ? nullptr : group->find(index);
  if (flow == nullptr) return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.8", "invalid flow");
  group->erase(index);
  return {};
}

}  // namespace softhca::connectx
