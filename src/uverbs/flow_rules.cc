#include "uverbs/flow_rules.h"

#include <algorithm>
#include <cerrno>

#include "util/log.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using Op = spec::command_opcode;

namespace {

std::uint32_t number_of(spec::flow_table_type type) { return static_cast<std::uint32_t>(type); }

}  // namespace

bool FlowMatch::is_for_groups() const {
  using Match = spec::fte_match_param;
  using L2ToL4 = spec::fte_match_set_lyr_2_4;
  constexpr std::uint8_t kOuterHeaders = 1;
  constexpr std::size_t kLast4 = 12;  // of 16 bytes
  if ((criteria & kOuterHeaders) == 0) return false;
  const auto in_mask = util::View<Match>(mask).get(Match::outer_headers);
  const auto in_value = util::View<Match>(value).get(Match::outer_headers);
  if (has_group_bit(in_mask.get(L2ToL4::dmac)) && has_group_bit(in_value.get(L2ToL4::dmac))) {
    return true;
  }
  return is_group_address(in_mask.get(L2ToL4::dst_ipv4_dst_ipv6).subspan(kLast4)) &&
         is_group_address(in_value.get(L2ToL4::dst_ipv4_dst_ipv6).subspan(kLast4));
}

bool FlowRules::Group::empty() const {
  return std::ranges::none_of(entries, [](const auto& one) { return one.has_value(); });
}

FlowRules::~FlowRules() {
  for (auto& [priority, table] : tables_) {
    for (std::uint32_t i = 0; i != kGroups; ++i) {
      if (table.groups[i]) end_group(table, i);
    }
    using In = spec::destroy_flow_table_in;
    Command<In> in(Op::DESTROY_FLOW_TABLE);
    in.set(In::table_type, number_of(type_));
    in.set(In::table_id, table.number);
    report(hca_.commands().run(in));
  }
}

FlowRules::Table* FlowRules::find_table(unsigned priority) {
  if (const auto at = tables_.find(priority); at != tables_.end()) {
    return linked_ || link_tables() ? &at->second : nullptr;
  }
  using In = spec::create_flow_table_in;
  Command<In> in(Op::CREATE_FLOW_TABLE);
  in.set(In::table_type, number_of(type_));
  const auto context = in.sub(In::flow_table_context);
  context.set(spec::flow_table_context::level, priority + 1);
  context.set(spec::flow_table_context::log_size, kLogEntries);
  const auto out = hca_.commands().execute<spec::create_flow_table_out>(in);
  if (!out) return nullptr;
  auto& table = tables_[priority];
  table.number = out->get(spec::create_flow_table_out::table_id);
  return link_tables() ? &table : nullptr;
}

const FlowRules::Table* FlowRules::next_table(unsigned priority) const {
  const auto at = tables_.upper_bound(priority);
  return at == tables_.end() ? nullptr : &at->second;
}

/// Links each table to the next: by its miss table, and by the entries that pass frames on. False:
/// the device refused part of it, and the next find_table() tries again.
bool FlowRules::link_tables() {
  linked_ = false;
  for (auto& [priority, table] : tables_) {
    const auto* const next = next_table(priority);
    const auto to = next == nullptr ? 0 : next->number;
    if (table.miss == to) continue;
    using In = spec::modify_flow_table_in;
    using TableContext = spec::flow_table_context;
    Command<In> in(Op::MODIFY_FLOW_TABLE);
    in.set(In::table_type, number_of(type_));
    in.set(In::table_id, table.number);
    in.set(In::modify_field_select, bit(spec::modify_flow_table_bit::MISS_TABLE_ID));
    const auto context = in.sub(In::flow_table_context);
    context.set(TableContext::table_miss_action,
                static_cast<std::uint32_t>(spec::table_miss_action::IDENTIFIED_MISS_TABLE));
    context.set(TableContext::table_miss_id, to);
    if (!hca_.commands().run(in) || !rewrite_passing(priority, table)) return false;
    table.miss = to;
  }
  using Root = spec::set_flow_table_root_in;
  Command<Root> root(Op::SET_FLOW_TABLE_ROOT);
  root.set(Root::table_type, number_of(type_));
  root.set(Root::table_id, tables_.begin()->second.number);
  linked_ = hca_.commands().run(root).has_value();
  return linked_;
}

bool FlowRules::rewrite_passing(unsigned priority, Table& table) {
  for (std::uint32_t i = 0; i != kGroups; ++i) {
    for (std::uint32_t k = 0; table.groups[i] && k != kGroupEntries; ++k) {
      const auto& entry = table.groups[i]->entries[k];
      const Place place{.priority = priority, .group = i, .entry = k};
      if (entry && !entry->passers.empty() && !write(table, place, false)) return false;
    }
  }
  return true;
}

bool FlowRules::make_group(const Table& table, std::uint32_t slot, const FlowMatch& match,
                           Group& group) {
  using In = spec::create_flow_group_in;
  Command<In> in(Op::CREATE_FLOW_GROUP);
  in.set(In::table_type, number_of(type_));
  in.set(In::table_id, table.number);
  in.set(In::start_flow_index, slot * kGroupEntries);
  in.set(In::end_flow_index, slot * kGroupEntries + kGroupEntries - 1);
  in.set(In::match_criteria_enable, match.criteria);
  std::ranges::copy(match.mask, in.sub(In::match_criteria).bytes().begin());
  const auto out = hca_.commands().execute<spec::create_flow_group_out>(in);
  if (!out) return false;
  group.number = out->get(spec::create_flow_group_out::group_id);
  group.match = match;
  return true;
}

/// Finds an entry with the same mask and value, or a free one in a group with the same mask.
Errno FlowRules::find_place(Table& table, const FlowRule& rule, Place& place) {
  std::optional<std::uint32_t> free_slot;
  bool found = false;
  for (std::uint32_t i = 0; i != kGroups; ++i) {
    auto& group = table.groups[i];
    if (!group) {
      if (!free_slot) free_slot = i;
      continue;
    }
    if (group->match.mask != rule.match.mask || group->match.criteria != rule.match.criteria) {
      continue;
    }
    for (std::uint32_t k = 0; k != kGroupEntries; ++k) {
      const auto& entry = group->entries[k];
      if (entry && entry->value == rule.match.value) {
        place = {.priority = rule.priority, .group = i, .entry = k};
        // Rules of one entry must agree on the action (Linux: check_conflicting_ftes).
        const bool same = entry->others.empty() == (rule.leads || rule.passes || rule.misses) &&
                          entry->drops == rule.drops && entry->tag == rule.tag &&
                          entry->counters == rule.counters;
        return same ? 0 : EEXIST;
      }
      if (entry || found) continue;
      place = {.priority = rule.priority, .group = i, .entry = k};
      found = true;
    }
  }
  if (found) return 0;
  if (!free_slot) return ENOSPC;
  Group group{};
  if (!make_group(table, *free_slot, rule.match, group)) return EINVAL;
  table.groups[*free_slot] = std::move(group);
  place = {.priority = rule.priority, .group = *free_slot, .entry = 0};
  return 0;
}

bool FlowRules::write(const Table& table, const Place& place, bool is_new) {
  using In = spec::set_flow_table_entry_in;
  using FlowContext = spec::flow_context;
  using To = spec::dest_format;
  const auto& group = *table.groups[place.group];
  const auto& entry = *group.entries[place.entry];
  auto destinations = entry.destinations;
  if (!entry.passers.empty()) {
    destinations.push_back(
        {0, spec::destination_type::FLOW_TABLE, next_table(place.priority)->number});
  }
  if (!entry.missers.empty()) {
    const auto left = tables_.at(FlowRule::kLeft).number;
    destinations.push_back({0, spec::destination_type::FLOW_TABLE, left});
  }
  Command<In> in(Op::SET_FLOW_TABLE_ENTRY,
                 (destinations.size() + entry.counters.size()) * To::kSize);
  if (!is_new) {
    in.set(In::op_mod, static_cast<std::uint32_t>(spec::set_flow_table_entry_op_mod::MODIFY));
    in.set(In::modify_enable_mask, bit(spec::set_fte_modify_bit::DESTINATION_LIST));
  }
  in.set(In::table_type, number_of(type_));
  in.set(In::table_id, table.number);
  in.set(In::flow_index, place.group * kGroupEntries + place.entry);
  const auto context = in.sub(In::flow_context);
  context.set(FlowContext::group_id, group.number);
  context.set(FlowContext::flow_tag, entry.tag);
  using Action = spec::flow_action;
  const auto way = entry.drops            ? Action::DROP
                   : destinations.empty() ? Action::ALLOW
                                          : Action::FWD_DEST;
  const auto counts = entry.counters.empty() ? 0u : static_cast<std::uint32_t>(Action::COUNT);
  context.set(FlowContext::action, static_cast<std::uint32_t>(way) | counts);
  context.set(FlowContext::destination_list_size, static_cast<std::uint32_t>(destinations.size()));
  context.set(FlowContext::flow_counter_list_size,
              static_cast<std::uint32_t>(entry.counters.size()));
  std::ranges::copy(entry.value, context.sub(FlowContext::match_value).bytes().begin());
  auto list = in.all().subspan(In::kSize);
  for (const auto& one : destinations) {
    const util::MutableView<To> to(list);
    to.set(To::destination_type, static_cast<std::uint32_t>(one.type));
    to.set(To::destination_id, one.number);
    list = list.subspan(To::kSize);
  }
  for (const auto counter : entry.counters) {
    using Counter = spec::flow_counter_list_entry;
    util::MutableView<Counter>(list).set(Counter::flow_counter_id, counter);
    list = list.subspan(Counter::kSize);
  }
  const auto done = hca_.commands().run(in);
  if (!done) util::log(util::LogLevel::kInfo, "flows: {}", done.error().message);
  return done.has_value();
}

Errno FlowRules::add(const FlowRule& rule, std::uint32_t& id) {
  // Frames that go on need a table.
  const bool goes_on = rule.passes || rule.misses;
  if (goes_on && find_table(FlowRule::kLeft) == nullptr) return ENOMEM;
  auto* table = find_table(rule.priority);
  if (table == nullptr) return ENOMEM;
  Place place{};
  if (const auto wrong = find_place(*table, rule, place); wrong != 0) return wrong;
  auto& entry = table->groups[place.group]->entries[place.entry];
  const bool is_new = !entry.has_value();
  if (is_new) {
    entry = Entry{.value = rule.match.value,
                  .tag = rule.tag,
                  .drops = rule.drops,
                  .destinations = {},
                  .passers = {},
                  .missers = {},
                  .others = {},
                  .counters = rule.counters};
  }
  id = ++last_;
  rules_[id] = place;
  if (rule.leads) entry->destinations.push_back({id, rule.to, rule.to_number});
  if (rule.passes) entry->passers.push_back(id);
  if (rule.misses) entry->missers.push_back(id);
  if (!rule.leads && !goes_on) entry->others.push_back(id);
  if (write(*table, place, is_new)) return 0;
  rules_.erase(id);
  take_out(*entry, id);
  if (entry->unused()) {
    entry.reset();
    if (table->groups[place.group]->empty()) end_group(*table, place.group);
  }
  return EINVAL;
}

void FlowRules::take_out(Entry& entry, std::uint32_t id) {
  std::erase_if(entry.destinations, [&](const Destination& one) { return one.rule == id; });
  std::erase(entry.passers, id);
  std::erase(entry.missers, id);
  std::erase(entry.others, id);
}

void FlowRules::remove(std::uint32_t id) {
  const auto at = rules_.find(id);
  if (at == rules_.end()) return;
  const auto place = at->second;
  rules_.erase(at);
  auto& table = tables_.at(place.priority);
  auto& group = *table.groups[place.group];
  auto& entry = group.entries[place.entry];
  take_out(*entry, id);
  if (!entry->unused()) {
    (void)write(table, place, false);
    return;
  }
  using In = spec::delete_flow_table_entry_in;
  Command<In> in(Op::DELETE_FLOW_TABLE_ENTRY);
  in.set(In::table_type, number_of(type_));
  in.set(In::table_id, table.number);
  in.set(In::flow_index, place.group * kGroupEntries + place.entry);
  report(hca_.commands().run(in));
  entry.reset();
  if (group.empty()) end_group(table, place.group);
}

void FlowRules::end_group(Table& table, std::uint32_t slot) {
  using In = spec::destroy_flow_group_in;
  Command<In> in(Op::DESTROY_FLOW_GROUP);
  in.set(In::table_type, number_of(type_));
  in.set(In::table_id, table.number);
  in.set(In::group_id, table.groups[slot]->number);
  report(hca_.commands().run(in));
  table.groups[slot].reset();
}

}  // namespace softhca::uverbs
