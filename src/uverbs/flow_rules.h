// Which frames go to which queues: the rules of all programs, in the device's flow tables (PRM
// 7.11). A table for each priority, in their order; in it a group for each set of bits that are
// compared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "driver/connectx/hca.h"
#include "spec/connectx/flow_table.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// What of a frame is compared, and with what.
struct FlowMatch {
  using Fields = std::array<std::byte, softhca::spec::connectx::fte_match_param::kSize>;
  Fields mask{};
  Fields value{};
  std::uint8_t criteria = 0;  ///< parts that are compared: bits of match_criteria_enable
};

struct FlowRule {
  /// As programs have it; 0: before all others.
  static constexpr unsigned kPriorityMax = 15;
  /// The place of its table. Who lets frames pass on comes before those of his priority that do
  /// not.
  static constexpr unsigned place_of(unsigned priority, bool passes) {
    return 2 * priority + (passes ? 0 : 1);
  }
  /// Behind them: what is left.
  static constexpr unsigned kLeftMulticast = 2 * kPriorityMax + 2, kLeft = kLeftMulticast + 1;

  softhca::spec::connectx::flow_table_type table{};
  unsigned priority = 0;  ///< place_of()
  FlowMatch match;
  std::uint32_t tag = 0;  ///< of its completions
  bool drops = false;
  bool passes = false;  ///< frames go on to the next table, too
  bool leads = false;   ///< to:
  softhca::spec::connectx::destination_type to{};
  std::uint32_t to_number = 0;
  std::vector<std::uint32_t> counters;  ///< the device's numbers
};

class FlowRules {
 public:
  using Type = softhca::spec::connectx::flow_table_type;

  FlowRules(driver::connectx::Hca& hca, Type type) : hca_(hca), type_(type) {}
  ~FlowRules();
  FlowRules(const FlowRules&) = delete;
  FlowRules& operator=(const FlowRules&) = delete;

  /// Who has a rule that compares the same with the same gets the frames, too. `id`: for remove().
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
    std::vector<std::uint32_t> passers;  ///< rules that let its frames pass on
    std::vector<std::uint32_t> others;   ///< rules of neither kind: they drop, allow, count
    std::vector<std::uint32_t> counters;
    bool unused() const { return destinations.empty() && passers.empty() && others.empty(); }
  };
  struct Group {
    std::uint32_t number;
    FlowMatch match;  ///< its mask
    std::array<std::optional<Entry>, kGroupEntries> entries;
    bool empty() const;
  };
  struct Table {
    std::uint32_t number = 0;
    std::uint32_t miss = 0;  ///< where what misses goes, as the device knows it; 0: nowhere
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
  /// Writes an entry, which is new or not.
  bool write(const Table& table, const Place& place, bool is_new);
  void end_group(Table& table, std::uint32_t slot);
  static void take_out(Entry& entry, std::uint32_t id);

  driver::connectx::Hca& hca_;
  const Type type_;
  bool linked_ = true;                ///< the tables, as they are to be
  std::map<unsigned, Table> tables_;  ///< by priority
  std::map<std::uint32_t, Place> rules_;
  std::uint32_t last_ = 0;
};

}  // namespace softhca::uverbs
