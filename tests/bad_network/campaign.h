// Eight hosts under random traffic and random weather, until a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "connection.h"
#include "datagrams.h"
#include "weather.h"

namespace softhca::bad_network {

/// The result of a run. It follows from the seed.
struct Outcome {
  std::uint64_t hash = 0;  ///< of all frames with their times
  std::uint64_t frames = 0;
  std::uint64_t breaks = 0;  ///< of connections
  std::uint64_t datagrams = 0;
  std::uint64_t datagrams_received = 0;
  std::uint64_t duplicates = 0;  ///< of datagrams
  std::uint64_t storms = 0;
  FlowCounts flows;
  std::array<std::uint64_t, Weather::kKinds> rules{};
  std::array<std::uint64_t, Weather::kKinds> fired{};

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

class Campaign {
 public:
  explicit Campaign(std::uint64_t seed);

  /// Runs for `time`, then ends all faults and waits until nothing is under way. Throws
  /// std::runtime_error with the first promise that does not hold.
  Outcome run(util::Duration time);

 private:
  Connection& between(unsigned a, unsigned b);
  util::Time next() const;
  bool look();
  bool take(unsigned host);
  void tend();
  void act();
  void settle(unsigned low, unsigned high);
  std::uint64_t doubtful_shared_adds(unsigned from, unsigned to);
  void check_at_rest();
  Outcome outcome() const;

  Random random_;
  HostMemory memory_;
  Fleet fleet_{kHosts};
  std::vector<std::unique_ptr<Site>> sites_;
  std::vector<std::unique_ptr<Connection>> connections_;  ///< by low, then high host
  std::unique_ptr<Datagrams> datagrams_;
  Weather weather_;
  util::Time next_act_;
};

}  // namespace softhca::bad_network
