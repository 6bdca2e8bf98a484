// Writes log lines to a descriptor in its own thread, so that logging never waits for the reader.
// Lines that the reader does not take in time are dropped, and the log says how many.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "util/log.h"

namespace softhca::util {

class LogWriter {
 public:
  static constexpr std::size_t kCapacity = std::size_t{1} << 20;

  /// Writes to a duplicate of `fd`. At most `capacity` bytes are queued. Throws std::system_error
  /// if no descriptor or thread is available.
  explicit LogWriter(int fd, std::size_t capacity = kCapacity);
  /// Waits for queued lines to be written, for a limited time.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// A LogSink. Callable from any thread.
  void write(LogLevel level, std::string_view text);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace softhca::util
