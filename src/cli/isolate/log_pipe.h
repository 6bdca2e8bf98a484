// The log of a process for devices: lines through a pipe, which the server writes to its own log.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "util/alarm.h"
#include "util/log.h"
#include "vfio_user/unique_fd.h"

namespace softhca::cli {

/// A LogSink for the process: a line that the pipe does not take is lost, and counted there.
void log_to_pipe(int pipe, util::LogLevel level, std::string_view text);

/// The server's end. It takes what a process writes, whatever it is, in lines of limited length and
/// number: what is too much stays in the pipe, and what does not fit there is the process's loss.
class LogPipe {
 public:
  static constexpr std::size_t kLineMax = 1024;
  /// Bytes that are taken at once, and in a second.
  static constexpr std::size_t kBurst = 256 << 10;

  using Sink = std::function<void(util::LogLevel, std::string_view)>;

  static util::Result<std::unique_ptr<LogPipe>> create(util::EventLoop& loop,
                                                       vfio_user::UniqueFd pipe, Sink sink);
  /// Takes what is left.
  ~LogPipe();
  LogPipe(const LogPipe&) = delete;
  LogPipe& operator=(const LogPipe&) = delete;

 private:
  LogPipe(util::EventLoop& loop, vfio_user::UniqueFd pipe, Sink sink);

  util::Result<void> watch();
  void handle();
  /// False if nothing is there now, or ever again.
  bool receive();
  void take_lines(std::string_view text);
  void write_line();

  util::EventLoop& loop_;
  vfio_user::UniqueFd pipe_;
  Sink sink_;
  std::unique_ptr<util::Alarm> pause_;
  std::string line_;
  std::size_t left_ = kBurst;  ///< of this second
  util::Time second_{};
};

}  // namespace softhca::cli
