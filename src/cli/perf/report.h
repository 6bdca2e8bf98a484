// What perf found: perftest's tables, JSON, a drawing.
#pragma once

#include <string>
#include <vector>

#include "cli/perf/measure.h"

namespace softhca::cli::perf {

struct Report {
  Options options;
  std::vector<Bandwidth> bandwidths;
  std::vector<Latency> latencies;
};

/// The lines above the table, as perftest has them.
std::string heading(const Options& options, bool of_bandwidth);
std::string columns(const Options& options, bool of_bandwidth);
std::string row(const Options& options, const Bandwidth& result);
std::string row(const Latency& result);
std::string rule();

std::string to_json(const Report& report);
/// Latency by size and bandwidth by size, each if it was measured.
std::string to_svg(const Report& report);

}  // namespace softhca::cli::perf
