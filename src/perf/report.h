// Results of perf as perftest's tables, JSON and a plot.
#pragma once

#include <string>
#include <vector>

#include "perf/measure.h"

namespace softhca::perf {

struct Report {
  Options options;
  std::vector<Bandwidth> bandwidths;
  std::vector<Latency> latencies;
};

/// The lines above the table, as in perftest.
std::string heading(const Options& options, bool of_bandwidth);
std::string columns(const Options& options, bool of_bandwidth);
std::string row(const Options& options, const Bandwidth& result);
std::string row(const Latency& result);
std::string rule();

std::string to_json(const Report& report);
/// Plots of latency and bandwidth by size, if measured.
std::string to_svg(const Report& report);

}  // namespace softhca::perf
