// PPCNT (PRM 11.1.5): groups of port counters. All groups are views of the same counts.
#pragma once

#include <cstddef>
#include <map>
#include <span>

#include "connectx/command/command.h"
#include "connectx/port/traffic_counters.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/registers.h"
#include "util/clock.h"

namespace softhca::connectx {

class NetworkPort;

class PortCounters {
 public:
  /// @pre `port` outlives the counters
  PortCounters(const NetworkPort& port, util::Time now) : port_(port), started_(now) {}

  /// Handles an access: writes the counters of the group that `in` selects to `out`, then clears
  /// them if `in` requests it. `write`: a Set(), which may clear all groups.
  CommandResult access(util::View<spec::connectx::reg_ppcnt> in, bool write,
                       util::MutableView<spec::connectx::reg_ppcnt> out, util::Time now);

 private:
  using Group = spec::connectx::ppcnt_group;

  struct Cleared {
    TrafficCounters counters;
    util::Time at{};
  };
  void clear(Group group, util::Time now);
  void fill(Group group, unsigned prio_tc, std::span<std::byte> out, util::Time now) const;

  const NetworkPort& port_;
  util::Time started_;
  std::map<Group, Cleared> cleared_;  ///< groups are cleared separately
};

}  // namespace softhca::connectx
