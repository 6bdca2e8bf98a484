// Log lines for users. Tests and the program choose the sink.
//
// Lines that a guest or the wire can cause go through a RateLimiter, so that they cannot flood the
// log.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "util/clock.h"

namespace softhca::util {

enum class LogLevel : std::uint8_t { kError, kWarning, kInfo, kDebug };

using LogSink = std::function<void(LogLevel, std::string_view)>;

/// "softhca: warning: text\n".
std::string format_log_line(LogLevel level, std::string_view text);

/// The initial sink. Never blocks: a line for which standard error has no room is dropped. It does
/// not take the lock of `stderr`, which a thread of the program may hold.
void write_to_stderr(LogLevel level, std::string_view text);
/// Replaces the sink. Not to be called while other threads log.
void set_log_sink(LogSink sink);
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_text(LogLevel level, std::string_view text);

/// Drops the line if there is no memory for it.
void log_format(LogLevel level, fmt::string_view format, fmt::format_args args) noexcept;

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, const Args&... args) {
  if (log_enabled(level)) log_format(level, format, fmt::make_format_args(args...));
}

/// Allows `burst` lines per `interval`, and counts the lines held back.
class RateLimiter {
 public:
  constexpr RateLimiter(unsigned burst, Duration interval) : burst_(burst), interval_(interval) {}

  /// True if a line may be written at `now`. Then `*held_back` is the number of lines held back
  /// since the last one.
  bool allow(Time now, std::uint64_t* held_back);

 private:
  unsigned burst_;
  Duration interval_;
  Time window_start_ = Time::min();
  unsigned used_ = 0;
  std::uint64_t held_back_ = 0;
};

}  // namespace softhca::util
