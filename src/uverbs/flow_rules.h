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
  unsigned priority = 0;  ///< 0: before all others
  FlowMatch match;
  std::uint32_t tag = 0;  ///< of its completions
  bool drops = false;     ///< otherwise it goes to:
  softhca::spec::connectx::destination_type to{};
  std::uint32_t to_number = 0;
};

class FlowRules {
 public:
  explicit FlowRules(driver::connectx::Hca& hca) : hca_(hca) {}
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
  };
  struct Group {
    std::uint32_t number;
    FlowMatch match;  ///< its mask
    std::array<std::optional<Entry>, kGroupEntries> entries;
    bool empty() const;
  };
  struct Table {
    std::uint32_t number = 0;
    std::array<std::optional<Group>, kGroups> groups;
  };
  struct Place {
    unsigned priority;
    std::uint32_t group, entry;
  };

  Table* find_table(unsigned priority);
  bool link_tables();
  Errno find_place(Table& table, const FlowRule& rule, Place& place);
  bool make_group(const Table& table, std::uint32_t slot, const FlowMatch& match, Group& group);
  /// Writes an entry, which is new or not.
  bool write(const Table& table, const Place& place, bool is_new);
  void end_group(Table& table, std::uint32_t slot);

  driver::connectx::Hca& hca_;
  std::map<unsigned, Table> tables_;  ///< by priority
  std::map<std::uint32_t, Place> rules_;
  std::uint32_t last_ = 0;
};

}  // namespace softhca::uverbs
