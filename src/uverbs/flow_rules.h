// Steering rules of all programs, in the device's flow tables (PRM 7.11). Each priority has a
// table, linked in order. Within a table each mask has a group.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "driver/connectx/hca.h"
#include "spec/connectx/flow_table.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// The compared fields of a frame, and their values.
struct FlowMatch {
  using Fields = std::array<std::byte, softhca::spec::connectx::fte_match_param::kSize>;
  Fields mask{};
  Fields value{};
  std::uint8_t criteria = 0;  ///< parts that are compared: bits of match_criteria_enable
  /// Whether no unicast frame matches, as far as raw_fs_is_multicast of mlx5_ib looks.
  bool is_for_groups() const;
};

/// Whether an address, or its mask, begins as those of groups do.
inline bool has_group_bit(std::span<const std::byte> mac) {
  return (mac.front() & std::byte{1}) != std::byte{0};
}
inline bool is_group_address(std::span<const std::byte> ipv4) {
  return (ipv4.front() & std::byte{0xf0}) == std::byte{0xe0};
}

struct FlowRule {
  /// Priority as programs give it; 0 is matched first.
  static constexpr unsigned kPriorityMax = 15;
  /// The table of a priority. Rules that pass frames on precede rules of the same priority that do
  /// not.
  static constexpr unsigned place_of(unsigned priority, bool passes) {
    return 2 * priority + (passes ? 0 : 1);
  }
  /// The table of rules for multicast frames alone (Linux: MLX5_IB_FLOW_MCAST_PRIO). It follows
  /// those of all priorities, whatever priority such a rule has.
  static constexpr unsigned kMulticast = 2 * kPriorityMax + 2;
  /// The table of leftovers, matched last.
  static constexpr unsigned kLeft = kMulticast + 1;

  softhca::spec::connectx::flow_table_type table{};
  unsigned priority = 0;  ///< place_of()
  FlowMatch match;
  std::uint32_t tag = 0;  ///< reported in completions
  bool drops = false;
  bool passes = false;  ///< frames also go on to the next table
  bool misses = false;  ///< frames go on to the leftovers
  bool leads = false;   ///< frames go to `to`, `to_number`
  softhca::spec::connectx::destination_type to{};
  std::uint32_t to_number = 0;
  std::vector<std::uint32_t> counters;  ///< numbers of device counters
};

class FlowRules {
 public:
  using Type = softhca::spec::connectx::flow_table_type;

  FlowRules(driver::connectx::Hca& hca, Type type) : hca_(hca), type_(type) {}
  ~FlowRules();
  FlowRules(const FlowRules&) = delete;
  FlowRules& operator=(const FlowRules&) = delete;

  /// Adds a rule. Rules with equal mask and value share an entry; each destination gets a copy of
  /// the frame. `id` receives the handle for remove().
  Errno add(const FlowRule& rule, std::uint32_t& id);
  void remove(std::uint32_t id);

 private:
  static constexpr unsigned kLogEntries = 12;
  static constexpr std::uint32_t kGroupEntries = 64;
  static constexpr std::uint32_t kGroups = (1u << kLogEntries) / kGroupEntries;

  struct Destination {
    std::uint32_t rule;
    softhca::spec::connectx::destination_type type;
    std::uint32_t number;
  };
  struct Entry {
    FlowMatch::Fields value;
    std::uint32_t tag;
    bool drops;
    std::vector<Destination> destinations;
    std::vector<std::uint32_t> passers;  ///< rules that pass frames on
    std::vector<std::uint32_t> missers;  ///< rules that leave frames to the leftovers
    std::vector<std::uint32_t> others;   ///< rules that only drop, allow or count
    std::vector<std::uint32_t> counters;
    bool unused() const {
      return destinations.empty() && passers.empty() && missers.empty() && others.empty();
    }
  };
  struct Group {
    std::uint32_t number;
    FlowMatch match;  ///< only its mask counts
    std::array<std::optional<Entry>, kGroupEntries> entries;
    bool empty() const;
  };
  struct Table {
    std::uint32_t number = 0;
    std::uint32_t miss = 0;  ///< miss table in the device; 0: none
    std::array<std::optional<Group>, kGroups> groups;
  };
  struct Place {
    unsigned priority;
    std::uint32_t group, entry;
  };

  Table* find_table(unsigned priority);
  bool link_tables();
  const Table* next_table(unsigned priority) const;
  bool rewrite_passing(unsigned priority, Table& table);
  Errno find_place(Table& table, const FlowRule& rule, Place& place);
  bool make_group(const Table& table, std::uint32_t slot, const FlowMatch& match, Group& group);
  /// Writes an entry to the device. `is_new`: the device does not have it yet.
  bool write(const Table& table, const Place& place, bool is_new);
  void end_group(Table& table, std::uint32_t slot);
  static void take_out(Entry& entry, std::uint32_t id);

  driver::connectx::Hca& hca_;
  const Type type_;
  bool linked_ = true;                ///< whether the device has every link between tables
  std::map<unsigned, Table> tables_;  ///< by priority
  std::map<std::uint32_t, Place> rules_;
  std::uint32_t last_ = 0;
};

}  // namespace softhca::uverbs
