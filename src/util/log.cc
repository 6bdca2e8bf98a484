#include "util/log.h"

#include <atomic>
#include <cstdio>
#include <iterator>
#include <new>

namespace softhca::util {
namespace {

constexpr const char* kLevelNames[] = {"error", "warning", "info", "debug"};

void write_to_stderr(LogLevel level, std::string_view text) {
  const auto line = format_log_line(level, text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

LogSink& sink() {
  static LogSink instance = write_to_stderr;
  return instance;
}

std::atomic<LogLevel> g_level = LogLevel::kInfo;

}  // namespace

std::string format_log_line(LogLevel level, std::string_view text) {
  return fmt::format("softhca: {}: {}\n", kLevelNames[static_cast<int>(level)], text);
}

void set_log_sink(LogSink new_sink) {
  sink() = new_sink ? std::move(new_sink) : LogSink(write_to_stderr);
}
void set_log_level(LogLevel level) { g_level = level; }
bool log_enabled(LogLevel level) { return level <= g_level.load(std::memory_order_relaxed); }
void log_text(LogLevel level, std::string_view text) {
  if (log_enabled(level)) sink()(level, text);
}

void log_format(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    fmt::memory_buffer text;
    fmt::vformat_to(std::back_inserter(text), format, args);
    log_text(level, {text.data(), text.size()});
  } catch (const std::bad_alloc&) {
    // It would be about this, most likely.
  }
}

bool RateLimiter::allow(Time now, std::uint64_t* held_back) {
  if (window_start_ == Time::min() || now - window_start_ >= interval_) {
    window_start_ = now;
    used_ = 0;
  }
  if (used_ >= burst_) {
    ++held_back_;
    return false;
  }
  ++used_;
  *held_back = std::exchange(held_back_, 0);
  return true;
}

}  // namespace softhca::util
