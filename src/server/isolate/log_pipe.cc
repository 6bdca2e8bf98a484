#include "server/isolate/log_pipe.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

namespace softhca::server {
namespace {

constexpr auto kSecond = std::chrono::seconds(1);
/// Reads at a process's end: as much as a pipe holds.
constexpr int kLastPieces = 16;

/// Takes the level off a line that log_to_pipe() wrote. Other lines (of an assertion or a
/// sanitizer) count as errors.
util::LogLevel take_level(std::string_view& line) {
  for (const auto level : {util::LogLevel::kError, util::LogLevel::kWarning, util::LogLevel::kInfo,
                           util::LogLevel::kDebug}) {
    auto head = util::format_log_line(level, "");
    head.pop_back();  // the newline
    if (!line.starts_with(head)) continue;
    line.remove_prefix(head.size());
    return level;
  }
  return util::LogLevel::kError;
}

}  // namespace

void log_to_pipe(int pipe, util::LogLevel level, std::string_view text) {
  static std::atomic<std::uint64_t> lost = 0;
  const auto write = [pipe](const std::string& line) {
    // Writes of up to PIPE_BUF bytes are atomic.
    return ::write(pipe, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  };
  if (const auto count = lost.exchange(0); count != 0) {
    const auto note = fmt::format("{} lines are lost here: too many at once", count);
    if (!write(util::format_log_line(util::LogLevel::kWarning, note))) {
      lost += count + 1;
      return;
    }
  }
  if (!write(util::format_log_line(level, text))) ++lost;
}

util::Result<std::unique_ptr<LogPipe>> LogPipe::create(os::EventLoop& loop, os::UniqueFd pipe,
                                                       Sink sink) {
  std::unique_ptr<LogPipe> out(new LogPipe(loop, std::move(pipe), std::move(sink)));
  auto pause = os::Alarm::create(loop, [&log = *out] { (void)log.watch(); });
  if (!pause) return tl::unexpected(pause.error());
  out->pause_ = *std::move(pause);
  if (auto watched = out->watch(); !watched) return tl::unexpected(watched.error());
  return out;
}

LogPipe::LogPipe(os::EventLoop& loop, os::UniqueFd pipe, Sink sink)
    : loop_(loop), pipe_(std::move(pipe)), sink_(std::move(sink)) {}

LogPipe::~LogPipe() {
  loop_.remove(pipe_.get());
  for (int i = 0; i != kLastPieces && receive(); ++i) {
  }
  if (!line_.empty()) write_line();
}

util::Result<void> LogPipe::watch() {
  return loop_.add(pipe_.get(), EPOLLIN, [this](std::uint32_t) { handle(); });
}

void LogPipe::handle() {
  const auto now = util::monotonic_now();
  if (now - second_ >= kSecond) {
    second_ = now;
    left_ = kBurst;
  }
  if (!receive()) return loop_.remove(pipe_.get());
  if (left_ != 0) return;
  loop_.remove(pipe_.get());
  pause_->set(second_ + kSecond);
}

bool LogPipe::receive() {
  std::array<char, 4096> piece;
  const auto size = ::read(pipe_.get(), piece.data(), piece.size());
  if (size < 0 && errno == EINTR) return true;
  if (size <= 0) return false;
  const auto bytes = static_cast<std::size_t>(size);
  left_ -= std::min(left_, bytes);
  take_lines({piece.data(), bytes});
  return true;
}

void LogPipe::take_lines(std::string_view text) {
  for (const char c : text) {
    if (c == '\n' || line_.size() == kLineMax) write_line();
    if (c == '\n') continue;
    // Neutralize control characters, which a terminal would obey.
    line_ += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  }
}

void LogPipe::write_line() {
  std::string_view text = line_;
  const auto level = take_level(text);
  sink_(level, text);
  line_.clear();
}

}  // namespace softhca::server
