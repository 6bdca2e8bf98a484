// Flow tables (PRM 7.11): which TIRs get a packet.
//
// A table is an ordered list of flows, divided into groups of flows with the same match criteria.
// The flow with the lowest index that matches wins. As all flows of a group have one mask, a group
// is a tree from masked packet fields to flows: a lookup costs one search for each group, of a
// logarithm of the number of its flows. (The hashes of a hash table could be chosen to collide by
// who chooses the flows, and to make it larger would be work for one command.) Tables of 64 Ki
// entries are the rule in drivers, with a handful of flows in each: only flows that exist take
// memory.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/steering/flow_match.h"
#include "hca/object_table.h"
#include "hca/use.h"
#include "spec/connectx/opcodes.h"
#include "util/budget.h"
#include "util/work_budget.h"

namespace softhca::connectx {

struct FlowDestination {
  spec::connectx::destination_type type{};  ///< FLOW_TABLE or TIR
  std::uint32_t id = 0;
  hca::Use use;
};

/// Where a flow forwards to: a list that counts against a budget of all flows.
struct FlowDestinations {
  std::vector<FlowDestination> list;
  util::Budget::Reservation reservation;
};

struct Flow {
  std::uint32_t index = 0;
  std::uint16_t action = 0;    ///< bits: flow_action
  std::uint32_t flow_tag = 0;  ///< 0: unmarked
  MatchKey value;              ///< only bits of the group's criteria
  std::uint64_t hash = 0;      ///< of the value; the group makes it
  FlowDestinations destinations;
  util::Budget::Reservation reservation;  ///< of one flow
};

/// A packet as flows see it.
struct PacketKeys {
  explicit PacketKeys(const MatchKey& packet)
      : fields(packet), as_untagged(without_priority_tag(packet)) {}

  const MatchKey& fields;
  std::optional<MatchKey> as_untagged;  ///< of a priority-tagged packet
};

/// Flows first() to last() of a table, with one mask (PRM 7.11.3.4).
class FlowGroup {
 public:
  struct Attributes {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint8_t criteria_enable = 0;
    MatchKey criteria;
    util::Budget::Reservation reservation;  ///< of one group
  };

  FlowGroup(std::uint32_t id, Attributes attributes);
  FlowGroup(const FlowGroup&) = delete;  // by_value_ refers to flows_
  FlowGroup& operator=(const FlowGroup&) = delete;

  std::uint32_t id() const { return id_; }
  std::uint32_t first() const { return attributes_.first; }
  std::uint32_t last() const { return attributes_.last; }
  std::uint8_t criteria_enable() const { return attributes_.criteria_enable; }
  const MatchKey& criteria() const { return attributes_.criteria; }
  std::size_t size() const { return flows_.size(); }

  Flow* find(std::uint32_t index);
  /// Adds a flow, or replaces the one with its index. @pre first() <= flow.index <= last()
  void set(Flow flow);
  /// @pre find(index) != nullptr
  void erase(std::uint32_t index);
  /// Whether packets that differ in their TCP flags alone may match different flows.
  bool compares_tcp_flags() const { return compares_tcp_flags_; }
  /// The matching flow with the lowest index, or null.
  const Flow* match(const PacketKeys& packet) const;
  /// Forgets flows, until `work` is spent. True: none is left.
  bool dismantle(util::WorkBudget& work);

 private:
  /// Masked packet fields, and their hash: nearly always that alone is compared.
  struct Wanted {
    std::uint64_t hash;
    const MatchKey& value;
  };
  /// By hash, value and index.
  struct ByValue {
    using is_transparent = void;
    static std::strong_ordering compare(const Wanted& a, const Wanted& b) {
      return a.hash != b.hash ? a.hash <=> b.hash : a.value <=> b.value;
    }
    bool operator()(const Flow* a, const Flow* b) const {
      const auto order = compare({a->hash, a->value}, {b->hash, b->value});
      return order != 0 ? order < 0 : a->index < b->index;
    }
    bool operator()(const Flow* flow, const Wanted& wanted) const {
      return compare({flow->hash, flow->value}, wanted) < 0;
    }
  };
  std::uint64_t hash(const MatchKey& value) const;
  const Flow* find_value(const MatchKey& packet) const;

  std::uint32_t id_;
  Attributes attributes_;
  bool compares_tag_and_vid_;
  bool compares_tcp_flags_;
  std::vector<std::uint8_t> words_;      ///< that the criteria select
  std::map<std::uint32_t, Flow> flows_;  ///< by index
  std::set<const Flow*, ByValue> by_value_;
};

class FlowTable : public hca::Used {
 public:
  struct Attributes {
    spec::connectx::flow_table_type type{};
    std::uint8_t level = 0;
    std::uint8_t log_size = 0;
    spec::connectx::table_miss_action miss_action{};
  };

  FlowTable(FlowTableId id, const Attributes& attributes) : id_(id), attributes_(attributes) {}

  FlowTableId id() const { return id_; }
  const Attributes& attributes() const { return attributes_; }
  std::uint64_t size() const { return std::uint64_t{1} << attributes_.log_size; }

  /// Where packets go that match no flow. `next`: the table of an identified miss, else null.
  void set_miss(spec::connectx::table_miss_action action, FlowTable* next);
  FlowTable* miss() const { return miss_; }
  /// Forgets flows, groups and miss, until `work` is spent. True: nothing leads from here to
  /// another table.
  bool dismantle(util::WorkBudget& work);

  /// True if a group has one of the flows `first` to `last`.
  bool overlaps(std::uint32_t first, std::uint32_t last) const;
  /// @pre !overlaps(group.first, group.last)
  FlowGroup& create_group(FlowGroup::Attributes group);
  FlowGroup* find_group(std::uint32_t id);
  /// The group that has flow `index`, or null.
  FlowGroup* group_of(std::uint32_t index);
  /// @pre find_group(id) != nullptr
  void destroy_group(std::uint32_t id);
  std::size_t group_count() const { return groups_.size(); }
  std::size_t flow_count() const;

  /// `tcp_flags` becomes true if a group was asked that compares these.
  const Flow* match(const PacketKeys& packet, bool& tcp_flags) const {
    for (const auto& group : groups_) {
      tcp_flags = tcp_flags || group->compares_tcp_flags();
      if (const auto* flow = group->match(packet)) return flow;
    }
    return nullptr;
  }
  template <class Visit>
  void for_each_group(Visit&& visit) {
    for (auto& group : groups_) visit(*group);
  }

 private:
  FlowTableId id_;
  Attributes attributes_;
  FlowTable* miss_ = nullptr;
  hca::Use miss_use_;
  std::uint32_t next_group_id_ = 1;
  std::vector<std::unique_ptr<FlowGroup>> groups_;  ///< by ascending first()
};

/// All flow tables, and the walk through them.
class FlowSteering {
 public:
  // Beside the limits that drivers are told: more than any driver makes, little enough that a
  // hostile one cannot exhaust the host.
  static constexpr std::uint32_t kGroupsMax = 1u << 14;
  static constexpr std::uint32_t kGroupsOfTableMax = 1u << 10;
  static constexpr std::uint32_t kDeliveriesMax = Limits::count(Limits{}.log_max_destination);
  static constexpr std::uint32_t kAllDestinationsMax = 2 * Limits::count(Limits{}.log_max_flow);

  /// A copy of the packet for one TIR.
  struct Delivery {
    Tirn tirn;
    std::uint32_t flow_tag;  ///< of the last flow on the way that had one
  };

  explicit FlowSteering(const Limits& limits);
  ~FlowSteering();
  /// Forgets some of all tables, until `work` is spent. True: none is left.
  bool dismantle(util::WorkBudget& work);
  FlowSteering(const FlowSteering&) = delete;
  FlowSteering& operator=(const FlowSteering&) = delete;

  /// Null if there are too many.
  FlowTable* create(const FlowTable::Attributes& attributes);
  FlowTable* find(spec::connectx::flow_table_type type, FlowTableId id);
  /// The root goes with its table: drivers do not disconnect it first. @pre it is not in use
  void destroy(FlowTableId id);

  /// Nothing: the default root, which is the table of level 0 (PRM 7.11.3.2).
  void set_root(std::optional<FlowTableId> id) { root_ = id; }
  std::optional<FlowTableId> root() const { return root_; }

  // How many there may be in all tables.
  util::Budget& groups() { return groups_; }
  util::Budget& flows() { return flows_; }
  util::Budget& destinations() { return destinations_; }
  const hca::ObjectTable<FlowTable, FlowTableId>& all() const { return tables_; }

  /// How it was found where a packet goes.
  struct Search {
    std::size_t steps = 0;   ///< tables and groups that were looked at
    bool tcp_flags = false;  ///< one with other TCP flags may go elsewhere
  };
  /// Appends where a packet goes. Nothing: it is dropped, the default of NIC receive tables
  /// (PRM 7.11.4.1).
  Search classify(const MatchKey& packet, std::vector<Delivery>& out);

 private:
  struct Walk {
    const PacketKeys packet;
    std::vector<Delivery>& out;
    std::size_t steps_left;
    bool tcp_flags = false;
  };

  FlowTable* root_table();
  /// Follows the chain from `table`; calls itself for multiple destinations.
  void walk(FlowTable* table, std::uint32_t flow_tag, Walk& walk);
  /// The table at which the walk goes on, or null.
  FlowTable* apply(const Flow& flow, std::uint32_t flow_tag, Walk& walk);

  util::Budget groups_{kGroupsMax};
  util::Budget flows_;
  util::Budget destinations_{kAllDestinationsMax};
  hca::ObjectTable<FlowTable, FlowTableId> tables_;
  std::optional<FlowTableId> root_;
  std::set<FlowTableId> of_level_zero_;
};

}  // namespace softhca::connectx
