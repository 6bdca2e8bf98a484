// Output of figures: a table for people, JSON for bench/run.
#pragma once

#include <string>
#include <vector>

#include "measure.h"

namespace softhca::bench {

void print(const std::vector<Result>& results);
/// `where` says where the figures were measured, for example "in process". Throws if the file
/// cannot be written.
void write_json(const std::vector<Result>& results, const std::string& path,
                const std::string& where = "in process");

/// Reports on stderr which round of which benchmark runs.
void show_progress(const std::string& name, unsigned round, unsigned rounds);
void end_progress();

}  // namespace softhca::bench
