// The log of a device process: lines through a pipe, which the server copies to its own log.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "os/alarm.h"
#include "os/unique_fd.h"
#include "util/log.h"

namespace softhca::server {

/// A LogSink for the process. If the pipe is full, a line is dropped, and counted in the log.
void log_to_pipe(int pipe, util::LogLevel level, std::string_view text);

/// The server's end. It limits the length and number of a process's lines. Excess data stay in the
/// pipe, and if that is full, the process loses them.
class LogPipe {
 public:
  static constexpr std::size_t kLineMax = 1024;
  /// Bytes taken in one burst, and in each second.
  static constexpr std::size_t kBurst = 256 << 10;

  using Sink = std::function<void(util::LogLevel, std::string_view)>;

  static util::Result<std::unique_ptr<LogPipe>> create(os::EventLoop& loop, os::UniqueFd pipe,
                                                       Sink sink);
  /// Takes the rest of the pipe.
  ~LogPipe();
  LogPipe(const LogPipe&) = delete;
  LogPipe& operator=(const LogPipe&) = delete;

 private:
  LogPipe(os::EventLoop& loop, os::UniqueFd pipe, Sink sink);

  util::Result<void> watch();
  void handle();
  /// False if no data are available, now or ever.
  bool receive();
  void take_lines(std::string_view text);
  void write_line();

  os::EventLoop& loop_;
  os::UniqueFd pipe_;
  Sink sink_;
  std::unique_ptr<os::Alarm> pause_;
  std::string line_;
  std::size_t left_ = kBurst;  ///< bytes left in this second
  util::Time second_{};
};

}  // namespace softhca::server
