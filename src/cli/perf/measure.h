// Bandwidth, latency and message rate of one size, as perftest measures them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cli/perf/station.h"

namespace softhca::cli::perf {

struct Bandwidth {
  std::uint64_t size = 0;        ///< bytes of a message
  std::uint64_t iterations = 0;  ///< messages, of each direction
  double seconds = 0;
  double average = 0;  ///< bytes a second, both directions together
  double peak = 0;     ///< of the best part of the run; 0: not asked for
  double rate = 0;     ///< messages a second
};

/// Microseconds. A SEND or WRITE: half of there and back. A READ or atomic: until it is complete.
struct Latency {
  std::uint64_t size = 0;
  std::uint64_t iterations = 0;
  double minimum = 0, maximum = 0;
  double typical = 0;  ///< the median
  double average = 0, deviation = 0;
  double p90 = 0, p99 = 0, p999 = 0;
};

/// Called now and then; what part is done, below 0 if that is not known. False: stop here.
using Continue = std::function<bool(double part)>;

util::Result<Bandwidth> measure_bandwidth(Station& station, std::uint64_t size,
                                          const Continue& go_on);
util::Result<Latency> measure_latency(Station& station, std::uint64_t size, const Continue& go_on);

/// The other end of these, where that is another process: works until its peer is done.
util::Result<void> serve_bandwidth(Station& station, std::uint64_t size, const Continue& go_on);
util::Result<void> serve_latency(Station& station, std::uint64_t size, const Continue& go_on);

/// What the samples, in microseconds, say. They are sorted thereby.
Latency summarize(std::uint64_t size, std::vector<double>& samples);

}  // namespace softhca::cli::perf
