#include "util/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace softhca::util {
namespace {

/// Edit distance: letters to insert, delete or replace to turn `a` into `b`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : a) {
    auto diagonal = row[0]++;
    for (std::size_t i = 0; i != b.size(); ++i) {
      const auto replaced = diagonal + (letter == b[i] ? 0U : 1U);
      diagonal = row[i + 1];
      row[i + 1] = std::min({replaced, diagonal + 1, row[i] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t kSlips = 2;
  const auto far = [word](const std::string& name) { return distance(word, name); };
  const auto at = std::ranges::min_element(names, {}, far);
  if (at == names.end() || far(*at) > std::min(kSlips, at->size() / 2)) return {};
  return fmt::format(" ({}?)", *at);
}

}  // namespace softhca::util
