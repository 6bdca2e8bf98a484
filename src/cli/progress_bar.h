// A line that grows on a terminal while bytes move.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "util/clock.h"

namespace softhca::cli {

/// 1.5 MiB, 999 B: at most four digits.
std::string to_size(double bytes);

class ProgressBar {
 public:
  /// `total` bytes, if that is known. Draws nothing unless `shown`.
  ProgressBar(std::optional<std::uint64_t> total, bool shown);
  /// Wipes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// At most ten times a second the line is drawn anew.
  void update(std::uint64_t done);

  /// The line: bar, percentage, bytes, bytes a second.
  static std::string line(std::uint64_t done, std::optional<std::uint64_t> total, double seconds);

 private:
  std::optional<std::uint64_t> total_;
  bool shown_;
  util::Time begin_;
  util::Time next_;
};

}  // namespace softhca::cli
