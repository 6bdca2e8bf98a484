// A progress line on a terminal while bytes are moved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "util/clock.h"

namespace softhca::cli {

/// Formats a size with at most four digits: 1.5 MiB, 999 B.
std::string to_size(double bytes);

class ProgressBar {
 public:
  /// `total` bytes, if known. Draws nothing unless `shown`.
  ProgressBar(std::optional<std::uint64_t> total, bool shown);
  /// Wipes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws the line, at most ten times a second.
  void update(std::uint64_t done);

  /// The line: bar, percentage, bytes, bytes per second.
  static std::string line(std::uint64_t done, std::optional<std::uint64_t> total, double seconds);

 private:
  std::optional<std::uint64_t> total_;
  bool shown_;
  util::Time begin_;
  util::Time next_;
};

}  // namespace softhca::cli
