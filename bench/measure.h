// Timing: the average duration of a call, and statistics over several rounds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace softhca::bench {

/// Calls `batch(n)`, which does n operations, with growing n until it takes `at_least`. Returns
/// nanoseconds per operation.
double time_per_operation(const std::function<void(std::uint64_t n)>& batch,
                          std::chrono::nanoseconds at_least);

/// One figure measured in several rounds. `peer` holds the same rounds of its reference, or is
/// empty.
struct Result {
  std::string name;
  std::string unit;
  std::vector<double> values;
  std::string peer_name;
  std::vector<double> peer_values;

  double median() const;
  double peer_median() const;
  /// Half the range between the smallest and the largest round, relative to the median: 0.02 is 2
  /// %.
  double spread() const;
  /// Median over the rounds of value / peer value. @pre there is a peer
  double ratio() const;
};

double median_of(std::vector<double> values);

}  // namespace softhca::bench
