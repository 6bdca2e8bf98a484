#include "connectx/steering/flow_table.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace softhca::connectx {

namespace {

using spec::connectx::destination_type;
using spec::connectx::flow_action;
using spec::connectx::table_miss_action;

/// Limit on the tables and groups that one packet may visit. Levels only rise along a chain, so a
/// legal walk is far shorter. The limit ends the walk of nested multi-path flows, which the manual
/// forbids (7.11.2.4).
constexpr std::size_t kStepsMax = 4096;
/// Costs of destroying a flow, a group or a table, and a destination of a flow.
constexpr std::int64_t kFlowWork = 300;
constexpr std::int64_t kDestinationWork = 5;
/// Cost of destroying a counter.
constexpr std::int64_t kCounterWork = 50;

bool has(std::uint16_t actions, flow_action action) {
  return (actions & static_cast<std::uint16_t>(action)) != 0;
}

}  // namespace

// FlowGroup ------------------------------------------------------------------------------------

std::uint64_t FlowGroup::hash(const MatchKey& value) const {
  std::uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const auto i : words_) {
    hash = (hash ^ value.word(i)) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;  // no format: a hash
  }
  return hash;
}

FlowGroup::FlowGroup(std::uint32_t id, Attributes attributes)
    : id_(id),
      attributes_(std::move(attributes)),
      compares_tag_and_vid_(compares_tag_and_vid(criteria())),
      compares_tcp_flags_(connectx::compares_tcp_flags(criteria())) {
  for (std::uint8_t i = 0; i < MatchKey::kWords; ++i) {
    if (criteria().word(i) != 0) words_.push_back(i);
  }
}

Flow* FlowGroup::find(std::uint32_t index) {
  const auto found = flows_.find(index);
  return found == flows_.end() ? nullptr : &found->second;
}

void FlowGroup::set(Flow flow) {
  assert(first() <= flow.index && flow.index <= last());
  if (find(flow.index) != nullptr) erase(flow.index);
  flow.value = flow.value.masked(criteria());
  flow.hash = hash(flow.value);
  const auto index = flow.index;
  by_value_.insert(&flows_.emplace(index, std::move(flow)).first->second);
}

void FlowGroup::erase(std::uint32_t index) {
  const auto found = flows_.find(index);
  assert(found != flows_.end());
  by_value_.erase(&found->second);
  flows_.erase(found);
}

bool FlowGroup::dismantle(util::WorkBudget& work) {
  while (!flows_.empty()) {
    if (work.spent()) return false;
    const auto& flow = flows_.begin()->second;
    const auto uses = flow.destinations.list.size() + flow.counters.list.size();
    work.charge(kFlowWork + static_cast<std::int64_t>(uses) * kDestinationWork);
    erase(flow.index);
  }
  return true;
}

const Flow* FlowGroup::find_value(const MatchKey& packet) const {
  const auto value = packet.masked(criteria());
  const Wanted wanted{hash(value), value};
  const auto found = by_value_.lower_bound(wanted);
  if (found == by_value_.end() || (*found)->hash != wanted.hash) return nullptr;
  return (*found)->value == value ? *found : nullptr;
}

const Flow* FlowGroup::match(const PacketKeys& packet) const {
  if (flows_.empty()) return nullptr;
  const auto* flow = find_value(packet.fields);
  if (!packet.as_untagged || !compares_tag_and_vid_) return flow;
  const auto* both_kinds = find_value(*packet.as_untagged);
  if (flow == nullptr || both_kinds == nullptr) return flow == nullptr ? both_kinds : flow;
  return flow->index < both_kinds->index ? flow : both_kinds;
}

// FlowTable ------------------------------------------------------------------------------------

void FlowTable::set_miss(table_miss_action action, FlowTable* next) {
  attributes_.miss_action = action;
  miss_ = next;
  miss_use_ = next == nullptr ? hca::Use() : next->use();
}

bool FlowTable::dismantle(util::WorkBudget& work) {
  for (; !groups_.empty(); groups_.pop_back()) {
    if (!groups_.back()->dismantle(work)) return false;
    work.charge(kFlowWork);
  }
  set_miss(table_miss_action::DEFAULT_ACTION, nullptr);
  return true;
}

bool FlowTable::overlaps(std::uint32_t first, std::uint32_t last) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    return first <= group->last() && group->first() <= last;
  });
}

FlowGroup& FlowTable::create_group(FlowGroup::Attributes group) {
  const auto place = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const auto& other) { return other->first() > group.first; });
  const auto id = next_group_id_++;
  return **groups_.insert(place, std::make_unique<FlowGroup>(id, std::move(group)));
}

FlowGroup* FlowTable::find_group(std::uint32_t id) {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const auto& group) { return group->id() == id; });
  return found == groups_.end() ? nullptr : found->get();
}

FlowGroup* FlowTable::group_of(std::uint32_t index) {
  const auto after = std::ranges::upper_bound(groups_, index, {},
                                              [](const auto& group) { return group->first(); });
  if (after == groups_.begin()) return nullptr;
  const auto& group = *std::prev(after);
  return index <= group->last() ? group.get() : nullptr;
}

void FlowTable::destroy_group(std::uint32_t id) {
  std::erase_if(groups_, [&](const auto& group) { return group->id() == id; });
}

std::size_t FlowTable::flow_count() const {
  std::size_t flows = 0;
  for (const auto& group : groups_) flows += group->size();
  return flows;
}

// FlowSteering ---------------------------------------------------------------------------------

FlowSteering::FlowSteering(const Limits& limits)
    : stages_{Stage(limits), Stage(limits), Stage(limits), Stage(limits)},
      counters_(1, limits.max_flow_counter),
      tables_(1, kStages * Limits::count(limits.log_max_ft_num)) {}

FlowSteering::~FlowSteering() {
  util::WorkBudget all(INT64_MAX);
  (void)dismantle(all);
}

bool FlowSteering::dismantle(util::WorkBudget& work) {
  // A table is destroyed only after all flows and misses that refer to it.
  bool apart = true;
  tables_.for_each([&](FlowTable& table) { apart = apart && table.dismantle(work); });
  work.charge(static_cast<std::int64_t>(tables_.count()));
  return apart && tables_.dismantle(work, [](const FlowTable&) { return kFlowWork; }) &&
         counters_.dismantle(work, [](const FlowCounter&) { return kCounterWork; });
}

FlowTable* FlowSteering::create(const FlowTable::Attributes& attributes) {
  auto& of_type = stage(attributes.type);
  auto reservation = of_type.tables.reserve(1);
  if (!reservation) return nullptr;
  auto* table = tables_.emplace(attributes, *std::move(reservation));
  if (attributes.level == 0) of_type.of_level_zero = table->id();
  return table;
}

FlowTable* FlowSteering::find(Type type, FlowTableId id) {
  auto* table = tables_.find(id);
  return table != nullptr && table->attributes().type == type ? table : nullptr;
}

void FlowSteering::destroy(FlowTable& table) {
  const auto id = table.id();
  auto& of_type = stage(table.attributes().type);
  if (of_type.root == id) of_type.root.reset();
  if (of_type.of_level_zero == id) of_type.of_level_zero.reset();
  tables_.erase(id);
}

FlowTable* FlowSteering::root_table(Type type) {
  const auto& of_type = stage(type);
  const auto root = of_type.root ? of_type.root : of_type.of_level_zero;
  return root ? tables_.find(*root) : nullptr;
}

FlowSteering::Search FlowSteering::classify(Type type, const MatchKey& packet, std::size_t octets,
                                            std::vector<Delivery>& out) {
  Walk packet_walk{PacketKeys(packet), octets, out, kStepsMax};
  walk(root_table(type), 0, packet_walk);
  return {kStepsMax - packet_walk.steps_left, packet_walk.tcp_flags, packet_walk.counted};
}

bool FlowSteering::transmits(const MatchKey& packet, std::size_t octets, Search& search) {
  std::vector<Delivery> nowhere;  // transmit flows forward only to tables
  Walk packet_walk{PacketKeys(packet), octets, nowhere, kStepsMax};
  walk(root_table(Type::NIC_TX), 0, packet_walk);
  search = {kStepsMax - packet_walk.steps_left, packet_walk.tcp_flags, packet_walk.counted};
  return !packet_walk.dropped;
}

void FlowSteering::count_packet(const Flow& flow, Walk& walk) {
  const auto& counters = flow.counters.list;
  if (counters.empty()) return;
  walk.counted = true;
  walk.steps_left -= std::min(walk.steps_left, counters.size());
  for (const auto& entry : counters) entry.counter->count(walk.octets);
}

void FlowSteering::walk(FlowTable* table, std::uint32_t flow_tag, Walk& walk) {
  while (table != nullptr && walk.steps_left > table->group_count()) {
    walk.steps_left -= 1 + table->group_count();
    const auto* flow = table->match(walk.packet, walk.tcp_flags);
    if (flow == nullptr) {
      table = table->miss();
      continue;
    }
    // PRM 7.11.2.9: the last tag on the path counts. An unmarked flow does not change it.
    if (flow->flow_tag != 0) flow_tag = flow->flow_tag;
    count_packet(*flow, walk);
    table = apply(*flow, flow_tag, walk);
  }
}

FlowTable* FlowSteering::apply(const Flow& flow, std::uint32_t flow_tag, Walk& packet_walk) {
  // "Allow" is the default action: NIC receive tables drop (PRM 7.11.4.1), transmit tables send.
  if (!has(flow.action, flow_action::FWD_DEST)) {
    packet_walk.dropped = has(flow.action, flow_action::DROP);
    return nullptr;
  }
  FlowTable* next = nullptr;
  for (const auto& destination : flow.destinations.list) {
    if (destination.type == destination_type::TIR) {
      if (packet_walk.out.size() < kDeliveriesMax) {
        packet_walk.out.push_back({Tirn(destination.id), flow_tag});
      }
      continue;
    }
    // Recurse for all tables except the last, so that a plain chain needs no recursion.
    if (next != nullptr) walk(next, flow_tag, packet_walk);
    next = tables_.find(FlowTableId(destination.id));
  }
  return next;
}

}  // namespace softhca::connectx
