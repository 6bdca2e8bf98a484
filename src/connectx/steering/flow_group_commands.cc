// CREATE_FLOW_GROUP, DESTROY_FLOW_GROUP, QUERY_FLOW_GROUP (PRM 12.14.6 to 12.14.8).
#include <cstring>
#include <utility>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/steering/flow_table.h"
#include "connectx/steering/flow_table_type.h"
#include "spec/connectx/flow_table.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

constexpr std::uint8_t bit(match_criteria_bit number) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(number));
}

/// The masks that criteria_enable declares valid. The other parts may have stale bytes of the
/// driver.
MatchKey enabled_criteria(util::View<fte_match_param> criteria, std::uint8_t enable) {
  auto mask = MatchKey::from_bytes(criteria.bytes());
  const auto clear = [&](std::size_t offset, std::size_t size) {
    std::memset(mask.bytes().data() + offset, 0, size);
  };
  if ((enable & bit(match_criteria_bit::OUTER_HEADERS)) == 0) {
    clear(fte_match_param::outer_headers.kOffset, fte_match_set_lyr_2_4::kSize);
  }
  if ((enable & bit(match_criteria_bit::MISC_PARAMETERS)) == 0) {
    clear(fte_match_param::misc_parameters.kOffset, fte_match_set_misc::kSize);
  }
  return mask;
}

CommandResult check_range(const FlowTable& table, std::uint32_t first, std::uint32_t last) {
  if (first > last) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.4", "start_flow_index above end_flow_index");
  }
  if (last >= table.size()) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.4", "the group exceeds the flow table");
  }
  if (table.overlaps(first, last)) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.4", "the group overlaps another one");
  }
  return {};
}

struct Found {
  FlowTable* table;
  FlowGroup* group;
};

template <class In>
Found find_group(DriverState& driver, util::View<In> in) {
  auto* table = driver.ethernet().steering().find(flow_table_type(in.get(In::table_type)),
                                                  FlowTableId(in.get(In::table_id)));
  if (table == nullptr) return {nullptr, nullptr};
  return {table, table->find_group(in.get(In::group_id))};
}

}  // namespace

CommandResult create_flow_group(DriverState& driver, const Command& command) {
  using In = create_flow_group_in;
  const auto in = command.input<In>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  auto& steering = driver.ethernet().steering();
  auto* table =
      steering.find(flow_table_type(in.get(In::table_type)), FlowTableId(in.get(In::table_id)));
  if (table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.6", "unknown flow table");
  const auto first = in.get(In::start_flow_index);
  const auto last = in.get(In::end_flow_index);
  if (auto checked = check_range(*table, first, last); !checked) return checked;
  if (in.get(In::group_type) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 406", "unknown group_type");
  }
  const auto enable = static_cast<std::uint8_t>(in.get(In::match_criteria_enable));
  constexpr auto known =
      bit(match_criteria_bit::OUTER_HEADERS) | bit(match_criteria_bit::MISC_PARAMETERS);
  if ((enable & ~known) != 0) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.4",
                  "criteria other than outer headers and misc parameters");
  }
  const auto criteria = enabled_criteria(in.get(In::match_criteria), enable);
  if (!criteria.within(matchable_fields())) {
    return refuse(Status::BAD_PARAM, "PRM 7.11.3.4",
                  "match criteria on a field without ft_field_support");
  }
  auto reservation = steering.groups().reserve(1);
  if (!reservation || table->group_count() >= FlowSteering::kGroupsOfTableMax) {
    return refuse(Status::NO_RESOURCES, "PRM 7.11.3.4", "too many flow groups");
  }
  const auto& group = table->create_group({.first = first,
                                           .last = last,
                                           .criteria_enable = enable,
                                           .criteria = criteria,
                                           .reservation = *std::move(reservation)});
  command.output<create_flow_group_out>().set(create_flow_group_out::group_id, group.id());
  return {};
}

CommandResult destroy_flow_group(DriverState& driver, const Command& command) {
  const auto in = command.input<destroy_flow_group_in>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  const auto [table, group] = find_group(driver, in);
  if (group == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.7", "unknown flow group");
  if (group->size() != 0) {
    return refuse(Status::BAD_RES_STATE, "PRM 7.11.3.8", "the group has valid flows");
  }
  table->destroy_group(group->id());
  return {};
}

CommandResult query_flow_group(DriverState& driver, const Command& command) {
  using Out = query_flow_group_out;
  const auto in = command.input<query_flow_group_in>();
  if (auto checked = check_flow_table_type(in); !checked) return checked;
  const auto group = find_group(driver, in).group;
  if (group == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.14.8", "unknown flow group");
  const auto out = command.output<Out>();
  out.set(Out::start_flow_index, group->first());
  out.set(Out::end_flow_index, group->last());
  out.set(Out::match_criteria_enable, group->criteria_enable());
  std::memcpy(out.sub(Out::match_criteria).bytes().data(), group->criteria().bytes().data(),
              MatchKey::kSize);
  return {};
}

}  // namespace softhca::connectx
