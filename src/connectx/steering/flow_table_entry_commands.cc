// SET_FLOW_TABLE_ENTRY, QUERY_FLOW_TABLE_ENTRY, DELETE_FLOW_TABLE_ENTRY (PRM 12.14.9 to 12.14.11).
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "connectx/command/commands.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/steering/flow_table.h"
#include "spec/connectx/flow_table.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

constexpr std::uint16_t kForward = static_cast<std::uint16_t>(flow_action::FWD_DEST);
constexpr std::uint16_t kExclusive = static_cast<std::uint16_t>(flow_action::ALLOW) |
                                     static_cast<std::uint16_t>(flow_action::DROP) | kForward;

constexpr std::uint32_t bit(set_fte_modify_bit number) {
  return 1u << static_cast<unsigned>(number);
}

CommandResult check_action(std::uint16_t action) {
  if ((action & ~kExclusive) != 0) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.2.2",
                  "an action that is not a capability (counting, reformat, header changes)");
  }
  if (!std::has_single_bit(action)) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.2.2", "not exactly one of allow, drop and forward");
  }
  return {};
}

CommandResult check_destination(Device& device, const FlowTable& table,
                                const FlowDestination& destination) {
  switch (destination.type) {
    case destination_type::TIR:
      if (device.ethernet().tirs().find(Tirn(destination.id)) != nullptr) return {};
      return refuse(Status::BAD_RESOURCE, "PRM 12.14.9", "unknown TIR as destination");
    case destination_type::FLOW_TABLE: {
      const auto* next =
          device.ethernet().steering().find(table.attributes().type, FlowTableId(destination.id));
      if (next == nullptr) {
        return refuse(Status::BAD_RESOURCE, "PRM 12.14.9", "unknown flow table as destination");
      }
      if (next->attributes().level > table.attributes().level) return {};
      return refuse(Status::BAD_PARAM, "PRM 7.11.3.3",
                    "the destination table does not have a higher level");
    }
    default:
      return refuse(Status::BAD_PARAM, "PRM 7.11.4.1",
                    "destination of NIC receive tables other than flow table and TIR");
  }
}

using Destinations = std::vector<FlowDestination>;

tl::expected<Destinations, Refusal> read_destinations(Device& device, const FlowTable& table,
                                                      util::View<flow_context> context,
                                                      std::span<const std::byte> list) {
  const auto count = context.get(flow_context::destination_list_size);
  if (count == 0) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.6", "forward without destination");
  }
  if (count > Limits::count(device.limits().log_max_destination)) {
    return refuse(Status::EXCEED_LIM, "PRM 7.11.3.6",
                  "destination_list_size above log_max_destination");
  }
  if (context.get(flow_context::extended_destination) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 430", "extended destinations are not a capability");
  }
  if (list.size() < std::size_t{count} * flow_context::destination_size) {
    return refuse(Status::BAD_INPUT_LEN, "PRM 12.14.9", "the input ends before its destinations");
  }
  Destinations destinations(count);
  for (std::size_t i = 0; i < count; ++i) {
    const util::View<dest_format> entry(list.subspan(i * flow_context::destination_size));
    destinations[i] = {destination_type(entry.get(dest_format::destination_type)),
                       entry.get(dest_format::destination_id)};
    if (auto checked = check_destination(device, table, destinations[i]); !checked) {
      return tl::unexpected(checked.error());
    }
  }
  return destinations;
}

void count_users(Device& device, const Destinations& destinations, int change) {
  device.ethernet().steering().destination_count() +=
      static_cast<std::uint32_t>(change * static_cast<int>(destinations.size()));
  for (const auto& destination : destinations) {
    auto& users = destination.type == destination_type::TIR
                      ? device.ethernet().tirs().find(Tirn(destination.id))->users
                      : device.ethernet()
                            .steering()
                            .find(flow_table_type::NIC_RX, FlowTableId(destination.id))
                            ->users;
    users += static_cast<std::uint32_t>(change);
  }
}

/// What the flow will be; `flow` has the flow as it is, if it is valid.
CommandResult read_flow(Device& device, const FlowTable& table, const Command& command,
                        std::uint32_t fields, Flow& flow) {
  const auto context =
      command.input<set_flow_table_entry_in>().get(set_flow_table_entry_in::flow_context);
  if ((fields & bit(set_fte_modify_bit::ACTION)) != 0) {
    flow.action = static_cast<std::uint16_t>(context.get(flow_context::action));
  }
  if (auto checked = check_action(flow.action); !checked) return checked;
  if ((fields & bit(set_fte_modify_bit::FLOW_TAG)) != 0) {
    flow.flow_tag = context.get(flow_context::flow_tag);
  }
  if ((flow.action & kForward) == 0) {
    flow.destinations.clear();
    return {};
  }
  if ((fields & bit(set_fte_modify_bit::DESTINATION_LIST)) == 0) {
    if (!flow.destinations.empty()) return {};
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.7",
                  "forward is added without modifying the destination list");
  }
  constexpr auto offset =
      set_flow_table_entry_in::flow_context.kOffset + flow_context::destination_offset;
  auto destinations = read_destinations(device, table, context, command.in_tail(offset));
  if (!destinations) return tl::unexpected(destinations.error());
  flow.destinations = std::move(*destinations);
  return {};
}

struct Place {
  FlowTable* table;
  FlowGroup* group;  ///< null: no group has this index
};

template <class In>
Place find_place(Device& device, util::View<In> in) {
  auto* table = device.ethernet().steering().find(flow_table_type(in.get(In::table_type)),
                                                  FlowTableId(in.get(In::table_id)));
  return {table, table == nullptr ? nullptr : table->group_of(in.get(In::flow_index))};
}

}  // namespace

CommandResult set_flow_table_entry(Device& device, const Command& command) {
  using In = set_flow_table_entry_in;
  const auto in = command.input<In>();
  const auto [table, group] = find_place(device, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.9", "unknown flow table");
  const auto context = in.get(In::flow_context);
  const auto index = in.get(In::flow_index);
  if (group == nullptr) {
    return refuse(Status::BAD_INDEX, "PRM 7.11.3.6", "flow_index is in no group of the table");
  }
  auto* old = group->find(index);
  auto fields = ~std::uint32_t{0};
  Flow flow;
  switch (set_flow_table_entry_op_mod(command.op_mod)) {
    case set_flow_table_entry_op_mod::SET:
      // Only a new flow names its group; a modification takes it as it is.
      if (context.get(flow_context::group_id) != group->id()) {
        return refuse(Status::BAD_INDEX, "PRM 7.11.3.6", "flow_index outside of the group");
      }
      flow.index = index;
      flow.value = MatchKey::from_bytes(context.get(flow_context::match_value).bytes());
      break;
    case set_flow_table_entry_op_mod::MODIFY:
      if (old == nullptr) {
        return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.7", "the flow to modify is invalid");
      }
      flow = *old;
      fields = in.get(In::modify_enable_mask);
      break;
    default:
      return refuse(Status::BAD_OP, "PRM Table 428", "unknown op_mod");
  }
  if (auto checked = read_flow(device, *table, command, fields, flow); !checked) return checked;
  auto& steering = device.ethernet().steering();
  auto& flow_count = steering.flow_count();
  if ((old == nullptr && flow_count >= Limits::count(device.limits().log_max_flow)) ||
      steering.destination_count() + flow.destinations.size() > FlowSteering::kAllDestinationsMax) {
    return refuse(Status::NO_RESOURCES, "PRM 7.11.3.6", "flows above log_max_flow");
  }
  count_users(device, flow.destinations, 1);
  if (old != nullptr) count_users(device, old->destinations, -1);
  if (old == nullptr) ++flow_count;
  group->set(std::move(flow));
  return {};
}

CommandResult query_flow_table_entry(Device& device, const Command& command) {
  using In = query_flow_table_entry_in;
  const auto in = command.input<In>();
  const auto group = find_place(device, in).group;
  const auto* flow = group == nullptr ? nullptr : group->find(in.get(In::flow_index));
  if (flow == nullptr) return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.9", "invalid flow");
  const auto out =
      command.output<query_flow_table_entry_out>().sub(query_flow_table_entry_out::flow_context);
  out.set(flow_context::group_id, group->id());
  out.set(flow_context::flow_tag, flow->flow_tag);
  out.set(flow_context::action, flow->action);
  out.set(flow_context::destination_list_size,
          static_cast<std::uint32_t>(flow->destinations.size()));
  std::memcpy(out.sub(flow_context::match_value).bytes().data(), flow->value.bytes().data(),
              MatchKey::kSize);
  auto list = command.out.subspan(query_flow_table_entry_out::flow_context.kOffset +
                                  flow_context::destination_offset);
  for (const auto& destination : flow->destinations) {
    if (list.size() < flow_context::destination_size) break;
    const util::MutableView<dest_format> entry(list);
    entry.set(dest_format::destination_type, static_cast<std::uint32_t>(destination.type));
    entry.set(dest_format::destination_id, destination.id);
    list = list.subspan(flow_context::destination_size);
  }
  return {};
}

CommandResult delete_flow_table_entry(Device& device, const Command& command) {
  using In = delete_flow_table_entry_in;
  const auto in = command.input<In>();
  const auto [table, group] = find_place(device, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.11", "unknown flow table");
  const auto index = in.get(In::flow_index);
  const auto* flow = group == nullptr ? nullptr : group->find(index);
  if (flow == nullptr) return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.8", "invalid flow");
  count_users(device, flow->destinations, -1);
  group->erase(index);
  --device.ethernet().steering().flow_count();
  return {};
}

}  // namespace softhca::connectx
