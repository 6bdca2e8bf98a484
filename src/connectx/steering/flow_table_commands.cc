// CREATE_FLOW_TABLE, MODIFY_FLOW_TABLE, DESTROY_FLOW_TABLE, SET_FLOW_TABLE_ROOT, QUERY_FLOW_TABLE
// (PRM 12.14.1 to 12.14.5).
#include "connectx/base/user_contexts.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/steering/flow_table.h"
#include "connectx/steering/flow_table_type.h"
#include "spec/connectx/flow_table.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

/// Finds the table with the type and number in the input.
template <class In>
FlowTable* find_table(DriverState& driver, util::View<In> in) {
  return driver.ethernet().steering().find(flow_table_type(in.get(In::table_type)),
                                           FlowTableId(in.get(In::table_id)));
}

struct Miss {
  table_miss_action action{};
  FlowTable* next = nullptr;  ///< table of an identified miss
};

/// Reads the miss part of a flow table context, for a table of this type and level.
tl::expected<Miss, Refusal> read_miss(DriverState& driver, util::View<flow_table_context> context,
                                      flow_table_type type, std::uint32_t level) {
  const auto action = table_miss_action(context.get(flow_table_context::table_miss_action));
  switch (action) {
    case table_miss_action::DEFAULT_ACTION:
      return Miss{action, nullptr};
    case table_miss_action::IDENTIFIED_MISS_TABLE:
      break;
    default:
      return refuse(Status::BAD_PARAM, "PRM Table 388", "unknown table_miss_action");
  }
  const FlowTableId id(context.get(flow_table_context::table_miss_id));
  auto* next = driver.ethernet().steering().find(type, id);
  if (next == nullptr) {
    return refuse(Status::BAD_RESOURCE, "PRM Table 388", "unknown miss table");
  }
  // Levels only define an order, because drivers use values above max_ft_level.
  if (next->attributes().level <= level) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.3", "the miss table does not have a higher level");
  }
  return Miss{action, next};
}

}  // namespace

CommandResult create_flow_table(DriverState& driver, const Command& command) {
  using In = create_flow_table_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  const auto context = in.get(In::flow_table_context);
  if (context.get(flow_table_context::log_size) > driver.limits().log_max_ft_size) {
    return refuse(Status::EXCEED_LIM, "PRM 7.11.3.1", "log_size above log_max_ft_size");
  }
  if (context.get(flow_table_context::reformat_en) != 0 ||
      context.get(flow_table_context::decap_en) != 0 ||
      context.get(flow_table_context::sw_owner) != 0 ||
      context.get(flow_table_context::termination_table) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 388",
                  "reformat, decap, software ownership and termination are not capabilities");
  }
  const auto level = context.get(flow_table_context::level);
  if (Uid(command.uid) != UserContexts::kKernel && level == 0) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.2",
                  "a table of level 0 is the root: the kernel's alone");
  }
  const auto type = flow_table_type(in.get(In::table_type));
  if (level == 0 && driver.ethernet().steering().has_level_zero(type)) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.2",
                  "a second table of level 0, which is the root");
  }
  const auto miss = read_miss(driver, context, type, level);
  if (!miss) return tl::unexpected(miss.error());
  FlowTable::Attributes attributes;
  attributes.type = type;
  attributes.level = static_cast<std::uint8_t>(level);
  attributes.log_size = static_cast<std::uint8_t>(context.get(flow_table_context::log_size));
  auto* table = driver.ethernet().steering().create(attributes);
  if (table == nullptr) return refuse(Status::NO_RESOURCES, "PRM 7.11.3.1", "too many flow tables");
  table->set_miss(miss->action, miss->next);
  command.output<create_flow_table_out>().set(create_flow_table_out::table_id, table->id().value());
  return {};
}

CommandResult modify_flow_table(DriverState& driver, const Command& command) {
  using In = modify_flow_table_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  auto* table = find_table(driver, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.2", "unknown flow table");
  constexpr auto kMiss = 1u << static_cast<unsigned>(modify_flow_table_bit::MISS_TABLE_ID);
  const auto select = in.get(In::modify_field_select);
  if ((select & ~kMiss) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 390", "modify_field_select has unknown bits");
  }
  if (select == 0) return {};
  const auto context = in.get(In::flow_table_context);
  const auto& attributes = table->attributes();
  const auto miss = read_miss(driver, context, attributes.type, attributes.level);
  if (!miss) return tl::unexpected(miss.error());
  table->set_miss(miss->action, miss->next);
  return {};
}

CommandResult destroy_flow_table(DriverState& driver, const Command& command) {
  using In = destroy_flow_table_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  auto* table = find_table(driver, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.3", "unknown flow table");
  if (table->group_count() != 0) {
    return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.8", "the flow table has groups");
  }
  // Another table would get the number, and references to this table would lead to that one.
  if (table->in_use()) {
    return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.8",
                  "a flow or the miss of another table leads to the flow table");
  }
  driver.ethernet().steering().destroy(*table);
  return {};
}

CommandResult set_flow_table_root(DriverState& driver, const Command& command) {
  using In = set_flow_table_root_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  auto& steering = driver.ethernet().steering();
  const auto type = flow_table_type(in.get(In::table_type));
  switch (set_flow_table_root_op_mod(command.op_mod)) {
    case set_flow_table_root_op_mod::RESET_TO_DEFAULT:
      steering.set_root(type, std::nullopt);
      return {};
    case set_flow_table_root_op_mod::SET:
      break;
    default:
      return refuse(Status::BAD_OP, "PRM 12.14.4", "unknown op_mod");
  }
  if (in.get(In::table_of_other_vport) != 0) {
    return refuse(Status::BAD_PARAM, "PRM 12.14.4", "a root table of another vport");
  }
  const auto* table = find_table(driver, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.4", "unknown flow table");
  steering.set_root(type, table->id());
  return {};
}

CommandResult query_flow_table(DriverState& driver, const Command& command) {
  using In = query_flow_table_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  const auto* table = find_table(driver, in);
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.5", "unknown flow table");
  const auto out =
      command.output<query_flow_table_out>().sub(query_flow_table_out::flow_table_context);
  const auto& attributes = table->attributes();
  out.set(flow_table_context::level, attributes.level);
  out.set(flow_table_context::log_size, attributes.log_size);
  out.set(flow_table_context::table_miss_action,
          static_cast<std::uint32_t>(attributes.miss_action));
  if (const auto* next = table->miss()) {
    out.set(flow_table_context::table_miss_id, next->id().value());
  }
  return {};
}

}  // namespace softhca::connectx
