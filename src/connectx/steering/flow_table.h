// Flow tables (PRM 7.11) choose the TIRs that get a packet, and the packets of SQs that are sent.
//
// A table is an ordered list of flows, divided into groups of flows with the same match criteria.
// The matching flow with the lowest index wins.
//
// All flows of a group have one mask, so a group is a tree from masked packet fields to flows. A
// lookup costs one search for each group, which is logarithmic in the number of its flows. A hash
// table would be unsafe for two reasons: a driver could choose flows whose hashes collide, and
// growing it would be too much work for one command.
//
// Only existing flows take memory, because drivers typically create tables of 64 Ki entries with a
// few flows in each.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/steering/flow_counter.h"
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

/// The destinations of a flow, charged to a budget of all flows.
struct FlowDestinations {
  std::vector<FlowDestination> list;
  util::Budget::Reservation reservation;
};

struct Flow {
  std::uint32_t index = 0;
  std::uint16_t action = 0;    ///< bits: flow_action
  std::uint32_t flow_tag = 0;  ///< 0: unmarked
  MatchKey value;              ///< masked by the group's criteria
  std::uint64_t hash = 0;      ///< hash of `value`, which the group sets
  FlowDestinations destinations;
  FlowCounterList counters;
  util::Budget::Reservation reservation;  ///< for one flow
};

/// The match fields of a packet.
struct PacketKeys {
  explicit PacketKeys(const MatchKey& packet)
      : fields(packet), as_untagged(without_priority_tag(packet)) {}

  const MatchKey& fields;
  std::optional<MatchKey> as_untagged;  ///< set for a priority-tagged packet
};

/// Flows first() to last() of a table, which share one mask (PRM 7.11.3.4).
class FlowGroup {
 public:
  struct Attributes {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint8_t criteria_enable = 0;
    MatchKey criteria;
    util::Budget::Reservation reservation;  ///< for one group
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
  /// True if packets that differ only in their TCP flags may match different flows.
  bool compares_tcp_flags() const { return compares_tcp_flags_; }
  /// The matching flow with the lowest index. Null if there is none.
  const Flow* match(const PacketKeys& packet) const;
  /// Destroys flows until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);

 private:
  /// Masked packet fields and their hash. Comparing the hash is nearly always enough.
  struct Wanted {
    std::uint64_t hash;
    const MatchKey& value;
  };
  /// Sorts by hash, value and index.
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
  std::vector<std::uint8_t> words_;      ///< indices of the nonzero words of the criteria
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

  /// `reservation`: for one table.
  FlowTable(FlowTableId id, const Attributes& attributes, util::Budget::Reservation reservation)
      : id_(id), attributes_(attributes), reservation_(std::move(reservation)) {}

  FlowTableId id() const { return id_; }
  const Attributes& attributes() const { return attributes_; }
  std::uint64_t size() const { return std::uint64_t{1} << attributes_.log_size; }

  /// Sets the action for packets that match no flow. `next`: the table of an identified miss. Null
  /// for another action.
  void set_miss(spec::connectx::table_miss_action action, FlowTable* next);
  FlowTable* miss() const { return miss_; }
  /// Destroys flows and groups and clears the miss, until `work` is spent. True if done: the table
  /// then refers to no other table.
  bool dismantle(util::WorkBudget& work);

  /// True if a group contains one of the flows `first` to `last`.
  bool overlaps(std::uint32_t first, std::uint32_t last) const;
  /// @pre !overlaps(group.first, group.last)
  FlowGroup& create_group(FlowGroup::Attributes group);
  FlowGroup* find_group(std::uint32_t id);
  /// The group that contains flow `index`. Null if there is none.
  FlowGroup* group_of(std::uint32_t index);
  /// @pre find_group(id) != nullptr
  void destroy_group(std::uint32_t id);
  std::size_t group_count() const { return groups_.size(); }
  std::size_t flow_count() const;

  /// Sets `tcp_flags` if a visited group compares TCP flags.
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
  util::Budget::Reservation reservation_;
  FlowTable* miss_ = nullptr;
  hca::Use miss_use_;
  std::uint32_t next_group_id_ = 1;
  std::vector<std::unique_ptr<FlowGroup>> groups_;  ///< by ascending first()
};

/// All flow tables. A packet is classified by a walk through the tables.
class FlowSteering {
 public:
  // Limits that no capability reports. No driver needs as many, and a hostile driver cannot exhaust
  // the host with them.
  static constexpr std::uint32_t kGroupsMax = 1u << 14;
  static constexpr std::uint32_t kGroupsOfTableMax = 1u << 10;
  static constexpr std::uint32_t kDeliveriesMax = Limits::count(Limits{}.log_max_destination);
  static constexpr std::uint32_t kAllDestinationsMax = 2 * Limits::count(Limits{}.log_max_flow);

  /// A copy of the packet for one TIR.
  struct Delivery {
    Tirn tirn;
    std::uint32_t flow_tag;  ///< tag of the last marked flow on the path
  };

  explicit FlowSteering(const Limits& limits);
  ~FlowSteering();
  /// Destroys tables and counters until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work);
  FlowSteering(const FlowSteering&) = delete;
  FlowSteering& operator=(const FlowSteering&) = delete;

  using Type = spec::connectx::flow_table_type;
  /// True if tables of this type are supported (PRM 7.11.4, 3.5).
  static bool has_type(Type type) { return stage_index(type) < kStages; }

  /// Null if there are too many. @pre has_type(attributes.type)
  FlowTable* create(const FlowTable::Attributes& attributes);
  FlowTable* find(Type type, FlowTableId id);
  /// Destroys a table. If it is the root, also unsets the root, because drivers do not disconnect
  /// it first. @pre the table is not in use
  void destroy(FlowTable& table);

  /// Sets the root. Unset: the default root, which is the table of level 0 (PRM 7.11.3.2). @pre
  /// has_type(type)
  void set_root(Type type, std::optional<FlowTableId> id) { stage(type).root = id; }
  std::optional<FlowTableId> root(Type type) const { return stage(type).root; }
  /// True if there is a root, explicit or default. @pre has_type(type)
  bool has_root(Type type) const { return stage(type).root.has_value() || has_level_zero(type); }
  bool has_level_zero(Type type) const { return stage(type).of_level_zero.has_value(); }

  // Budgets of all tables together.
  util::Budget& groups() { return groups_; }
  util::Budget& flows(Type type) { return stage(type).flows; }
  /// The budget of destinations and counters.
  util::Budget& destinations() { return destinations_; }
  using Counters = hca::ObjectTable<FlowCounter, FlowCounterId>;
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  const hca::ObjectTable<FlowTable, FlowTableId>& all() const { return tables_; }

  /// Side results of a classification.
  struct Search {
    std::size_t steps = 0;   ///< tables, groups and counters visited
    bool tcp_flags = false;  ///< a packet with other TCP flags may be classified differently
    bool counted = false;    ///< a flow counter counted the packet
  };
  /// Appends the deliveries of a packet of `octets` bytes. If there are none, a NIC receive packet
  /// is dropped (the default, PRM 7.11.4.1), or a sniffed packet is not copied. @pre has_type(type)
  Search classify(Type type, const MatchKey& packet, std::size_t octets,
                  std::vector<Delivery>& out);
  /// True if a packet of `octets` bytes is sent, false if a flow drops it (PRM 7.11.4.2).
  bool transmits(const MatchKey& packet, std::size_t octets, Search& search);

 private:
  /// Tables of one type. Each type has its own root and its own limits (PRM 7.11.2.3, Table 151).
  struct Stage {
    explicit Stage(const Limits& limits)
        : tables(Limits::count(limits.log_max_ft_num)), flows(Limits::count(limits.log_max_flow)) {}
    std::optional<FlowTableId> root;
    std::optional<FlowTableId> of_level_zero;
    util::Budget tables;
    util::Budget flows;
  };
  static constexpr std::size_t kStages = 4;
  static std::size_t stage_index(Type type) {
    return type == Type::NIC_RX       ? 0
           : type == Type::SNIFFER_RX ? 1
           : type == Type::SNIFFER_TX ? 2
           : type == Type::NIC_TX     ? 3
                                      : kStages;
  }
  Stage& stage(Type type) { return stages_[stage_index(type)]; }
  const Stage& stage(Type type) const { return stages_[stage_index(type)]; }

  struct Walk {
    const PacketKeys packet;
    const std::size_t octets;
    std::vector<Delivery>& out;
    std::size_t steps_left;
    bool tcp_flags = false;
    bool counted = false;
    bool dropped = false;  ///< the last flow on the path drops the packet
  };

  FlowTable* root_table(Type type);
  static void count_packet(const Flow& flow, Walk& walk);
  /// Walks along the chain from `table`. Recurses for multiple destinations.
  void walk(FlowTable* table, std::uint32_t flow_tag, Walk& walk);
  /// Returns the table with which the walk continues. Null: the walk ends.
  FlowTable* apply(const Flow& flow, std::uint32_t flow_tag, Walk& walk);

  util::Budget groups_{kGroupsMax};
  util::Budget destinations_{kAllDestinationsMax};
  std::array<Stage, kStages> stages_;
  Counters counters_;
  hca::ObjectTable<FlowTable, FlowTableId> tables_;
};

}  // namespace softhca::connectx
