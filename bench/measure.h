// Timing: how long one call takes on average, and what to say of several such figures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace softhca::bench {

/// Calls `batch(n)`, which does n operations, with growing n until it takes `at_least`. Returns
/// nanoseconds for one operation.
double time_per_operation(const std::function<void(std::uint64_t n)>& batch,
                          std::chrono::nanoseconds at_least);

/// One figure of several rounds. `peer`: the same rounds of what it stands beside, or empty.
struct Result {
  std::string name;
  std::string unit;
  std::vector<double> values;
  std::string peer_name;
  std::vector<double> peer_values;

  double median() const;
  double peer_median() const;
  /// Half the range between the smallest and the largest round, of the median: 0.02 is 2 %.
  double spread() const;
  /// Median over the rounds of value / peer value. @pre there is a peer
  double ratio() const;
};

double median_of(std::vector<double> values);

}  // namespace softhca::bench
