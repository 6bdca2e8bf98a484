// Bandwidth, latency and message rate for one size, measured as in perftest.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "perf/testbed.h"

namespace softhca::perf {

struct Bandwidth {
  std::uint64_t size = 0;        ///< bytes of a message
  std::uint64_t iterations = 0;  ///< messages in each direction
  double seconds = 0;
  double average = 0;  ///< bytes per second, sum of both directions
  double peak = 0;     ///< in the best part of the run; 0: not measured
  double rate = 0;     ///< messages per second
};

/// Microseconds. SEND or WRITE: half a round trip. READ or atomic: until completion.
struct Latency {
  std::uint64_t size = 0;
  std::uint64_t iterations = 0;
  double minimum = 0, maximum = 0;
  double typical = 0;  ///< the median
  double average = 0, deviation = 0;
  double p90 = 0, p99 = 0, p999 = 0;
};

/// Called now and then with the fraction done; negative: unknown. Returns false to stop.
using Continue = std::function<bool(double part)>;

util::Result<Bandwidth> measure_bandwidth(Testbed& testbed, std::uint64_t size,
                                          const Continue& go_on);
util::Result<Latency> measure_latency(Testbed& testbed, std::uint64_t size, const Continue& go_on);

/// The passive end in another process: works until its peer is done.
util::Result<void> serve_bandwidth(Testbed& testbed, std::uint64_t size, const Continue& go_on);
util::Result<void> serve_latency(Testbed& testbed, std::uint64_t size, const Continue& go_on);

/// Statistics of the samples, in microseconds. Sorts them.
Latency summarize(std::uint64_t size, std::vector<double>& samples);

}  // namespace softhca::perf
