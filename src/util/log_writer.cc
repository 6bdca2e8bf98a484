#include "util/log_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace softhca::util {
namespace {

constexpr auto kPatienceAtTheEnd = std::chrono::milliseconds(200);

/// Writes all of `text`, if possible. If the reader is gone, it stops (SIGPIPE is blocked here).
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

/// State shared by the thread and the writer, which may be destroyed first. So it has its own
/// descriptor, and the caller may close the other at any time.
struct LogWriter::State {
  State(int to, std::size_t bytes) : fd(::fcntl(to, F_DUPFD_CLOEXEC, 0)), capacity(bytes) {
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "the log's descriptor");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { ::close(fd); }

  void run() {
    std::unique_lock lock(mutex);
    std::string batch;
    while (true) {
      changed.wait(lock, [this] { return ended || !waiting.empty(); });
      if (waiting.empty()) return;
      batch.clear();
      batch.swap(waiting);
      if (lost != 0) {
        batch += format_log_line(LogLevel::kWarning,
                                 fmt::format("{} lines are lost here: the log is not read", lost));
        lost = 0;
      }
      writing = true;
      lock.unlock();
      write_all(fd, batch);
      lock.lock();
      writing = false;
      changed.notify_all();
    }
  }

  const int fd;
  const std::size_t capacity;
  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting;
  std::size_t lost = 0;  ///< lines dropped after those in `waiting`
  bool writing = false;
  bool ended = false;
};

LogWriter::LogWriter(int fd, std::size_t capacity) : state_(std::make_shared<State>(fd, capacity)) {
  // Other threads handle signals; SIGPIPE would end the process.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->run(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kPatienceAtTheEnd,
                           [this] { return state_->waiting.empty() && !state_->writing; });
  state_->ended = true;
  state_->changed.notify_all();
}

void LogWriter::write(LogLevel level, std::string_view text) {
  const auto line = format_log_line(level, text);
  const std::lock_guard lock(state_->mutex);
  // After a loss, lines are dropped until the loss itself is logged, so that lines keep their
  // order.
  if (state_->lost != 0 || state_->waiting.size() + line.size() > state_->capacity) {
    ++state_->lost;
    return;
  }
  state_->waiting += line;
  state_->changed.notify_all();
}

}  // namespace softhca::util
