// Random faults of the cables: at most one rule for each host at a time, of all kinds that
// fabric/fault_rule.h has.
//
// Storms break connections: for five seconds and more a host loses all frames, or all responses.
// Any other two rules together leave a connection up: within half a second a packet passes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "site.h"

namespace softhca::bad_network {

class Weather {
 public:
  Weather(Fleet& fleet, std::uint64_t seed);

  /// When handle() is due.
  util::Time next() const;
  /// Ends rules whose time is over, and adds others.
  void handle();
  /// Ends all rules.
  void clear();
  /// Whether the connection of two hosts may break now.
  bool may_break(unsigned a, unsigned b) const;

  static constexpr std::size_t kKinds = 9;
  /// Rules so far, by fabric::FaultAction, and how often they fired.
  const std::array<std::uint64_t, kKinds>& rules() const { return rules_; }
  const std::array<std::uint64_t, kKinds>& fired() const { return fired_; }
  std::uint64_t storms() const { return storms_; }

 private:
  struct Active {
    fabric::NetworkFaults::Id id = 0;
    fabric::FaultAction action{};
    util::Time until{};
  };

  std::string draw_rule();
  std::string draw_storm();
  std::string draw_match(bool has_direction);
  void start(unsigned host);
  void end(unsigned host);

  Fleet& fleet_;
  Random random_;
  std::vector<std::optional<Active>> active_;
  std::vector<util::Time> may_break_until_;
  util::Time next_start_;
  std::array<std::uint64_t, kKinds> rules_{};
  std::array<std::uint64_t, kKinds> fired_{};
  std::uint64_t storms_ = 0;
};

}  // namespace softhca::bad_network
