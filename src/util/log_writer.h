// Writes log lines to a descriptor in a thread of its own: who logs never waits for who reads. What
// the reader does not take in time is dropped, and counted in the log.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "util/log.h"

namespace softhca::util {

class LogWriter {
 public:
  static constexpr std::size_t kCapacity = std::size_t{1} << 20;

  /// Writes to a duplicate of `fd`. At most `capacity` bytes wait to be written. Throws
  /// std::system_error if there is no descriptor or thread left.
  explicit LogWriter(int fd, std::size_t capacity = kCapacity);
  /// Waits a moment for the rest to be written, and no longer.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// A LogSink. From any thread.
  void write(LogLevel level, std::string_view text);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace softhca::util
