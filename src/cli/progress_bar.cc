#include "cli/progress_bar.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

namespace softhca::cli {
namespace {

constexpr std::size_t kCells = 30;
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr const char* kWipe = "\r\x1b[K";

}  // namespace

std::string to_size(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

ProgressBar::ProgressBar(std::optional<std::uint64_t> total, bool shown)
    : total_(total), shown_(shown), begin_(util::monotonic_now()), next_(begin_ + kInterval) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputs(kWipe, stderr);
}

std::string ProgressBar::line(std::uint64_t done, std::optional<std::uint64_t> total,
                              double seconds) {
  const auto rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const auto moved = fmt::format("{}  {}/s", to_size(static_cast<double>(done)), to_size(rate));
  if (!total || *total == 0) return moved;
  const auto part = std::min(1.0, static_cast<double>(done) / static_cast<double>(*total));
  const auto full = static_cast<std::size_t>(part * kCells);
  return fmt::format("[{}{}] {:3.0f} %  {}", std::string(full, '#'),
                     std::string(kCells - full, '.'), part * 100, moved);
}

void ProgressBar::update(std::uint64_t done) {
  if (!shown_) return;
  const auto now = util::monotonic_now();
  if (now < next_) return;
  next_ = now + kInterval;
  const auto seconds = std::chrono::duration<double>(now - begin_).count();
  fmt::print(stderr, "{}{}", kWipe, line(done, total_, seconds));
  std::fflush(stderr);
}

}  // namespace softhca::cli
