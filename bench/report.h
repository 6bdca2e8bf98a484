// What is said of figures: a table for people, JSON for bench/run.
#pragma once

#include <string>
#include <vector>

#include "measure.h"

namespace softhca::bench {

void print(const std::vector<Result>& results);
/// `where`: what was measured, "in process" or else. Throws if the file cannot be written.
void write_json(const std::vector<Result>& results, const std::string& path,
                const std::string& where = "in process");

/// Says on stderr which round of what is measured.
void show_progress(const std::string& name, unsigned round, unsigned rounds);
void end_progress();

}  // namespace softhca::bench
