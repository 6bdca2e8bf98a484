// The log of a device process: lines through a pipe, which the server copies to its own log.
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

  static util::Result<std::unique_ptr<LogPipe>> create(util::EventLoop& loop,
                                                       vfio_user::UniqueFd pipe, Sink sink);
  /// Takes the rest of the pipe.
  ~LogPipe();
  LogPipe(const LogPipe&) = delete;
  LogPipe& operator=(const LogPipe&) = delete;

 private:
  LogPipe(util::EventLoop& loop, vfio_user::UniqueFd pipe, Sink sink);

  util::Result<void> watch();
  void handle();
  /// False if no data are available, now or ever.
  bool receive();
  void take_lines(std::string_view text);
  void write_line();

  util::EventLoop& loop_;
  vfio_user::UniqueFd pipe_;
  Sink sink_;
  std::unique_ptr<util::Alarm> pause_;
  std::string line_;
  std::size_t left_ = kBurst;  ///< bytes left in this second
  util::Time second_{};
};

}  // namespace softhca::cli
