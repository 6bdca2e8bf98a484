#include "report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace softhca::bench {

void print(const std::vector<Result>& results) {
  fmt::print("{:<22}{:>12} {:<6}{:>8}{:>26}{:>8}\n", "", "median", "", "+-", "peer", "ratio");
  for (const auto& r : results) {
    fmt::print("{:<22}{:>12.2f} {:<6}{:>7.1f}%", r.name, r.median(), r.unit, 100 * r.spread());
    if (!r.peer_values.empty()) {
      fmt::print("{:>26}{:>8.2f}", fmt::format("{} {:.2f}", r.peer_name, r.peer_median()),
                 r.ratio());
    }
    fmt::print("\n");
  }
}

void write_json(const std::vector<Result>& results, const std::string& path,
                const std::string& where) {
  auto list = nlohmann::json::array();
  for (const auto& r : results) {
    nlohmann::json entry{{"name", r.name},    {"where", where},       {"who", "softhca"},
                         {"unit", r.unit},    {"median", r.median()}, {"spread", r.spread()},
                         {"rounds", r.values}};
    if (!r.peer_values.empty()) {
      entry["peer"] = {
          {"who", r.peer_name}, {"median", r.peer_median()}, {"rounds", r.peer_values}};
      entry["ratio"] = r.ratio();
    }
    list.push_back(std::move(entry));
  }
  std::ofstream file(path);
  file << nlohmann::json{{"results", std::move(list)}}.dump(2) << "\n";
  if (!file) throw std::runtime_error("cannot write " + path);
}

void show_progress(const std::string& name, unsigned round, unsigned rounds) {
  if (::isatty(STDERR_FILENO) != 0) {
    std::cerr << fmt::format("\r{:<22} round {} of {} ", name, round + 1, rounds);
  } else if (round == 0) {
    std::cerr << "measuring " << name << "\n";
  }
}

void end_progress() {
  if (::isatty(STDERR_FILENO) != 0) std::cerr << "\r" << std::string(50, ' ') << "\r";
}

}  // namespace softhca::bench
