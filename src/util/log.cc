#include "util/log.h"

#include <limits.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <new>

namespace softhca::util {
namespace {

constexpr const char* kLevelNames[] = {"error", "warning", "info", "debug"};

LogSink& sink() {
  static LogSink instance = write_to_stderr;
  return instance;
}

std::atomic<LogLevel> g_level = LogLevel::kInfo;

}  // namespace

std::string format_log_line(LogLevel level, std::string_view text) {
  return fmt::format("softhca: {}: {}\n", kLevelNames[static_cast<int>(level)], text);
}

void write_to_stderr(LogLevel level, std::string_view text) {
  auto line = format_log_line(level, text);
  if (line.size() > PIPE_BUF) {
    line.resize(PIPE_BUF);
    line.back() = '\n';
  }
  const iovec all{.iov_base = line.data(), .iov_len = line.size()};
  if (::pwritev2(STDERR_FILENO, &all, 1, -1, RWF_NOWAIT) >= 0) return;
  // Terminals, and pipes of kernels before 6.4, do not support the flag.
  pollfd has_room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&has_room, 1, 0) != 1 || (has_room.revents & POLLOUT) == 0) return;
  (void)!::write(STDERR_FILENO, line.data(), line.size());
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
    // A line about it would most likely fail, too.
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
