#include "measure.h"

#include <algorithm>

namespace softhca::bench {

double time_per_operation(const std::function<void(std::uint64_t n)>& batch,
                          std::chrono::nanoseconds at_least) {
  using Clock = std::chrono::steady_clock;
  batch(1);  // warms up caches, tables, page faults
  for (std::uint64_t n = 1;; n *= 2) {
    const auto begin = Clock::now();
    batch(n);
    const auto took = Clock::now() - begin;
    if (took >= at_least) {
      return std::chrono::duration<double, std::nano>(took).count() / static_cast<double>(n);
    }
  }
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Result::median() const { return median_of(values); }
double Result::peer_median() const { return median_of(peer_values); }

double Result::spread() const {
  if (values.empty()) return 0;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return (*high - *low) / 2 / median();
}

double Result::ratio() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(values.size(), peer_values.size()); ++i) {
    ratios.push_back(values[i] / peer_values[i]);
  }
  return median_of(std::move(ratios));
}

}  // namespace softhca::bench
