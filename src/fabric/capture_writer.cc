#include "fabric/capture_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "util/endian.h"

namespace softhca::fabric {
namespace {

/// Blocks that arrive within this time are written together, unless they exceed kMuch.
constexpr auto kDelay = std::chrono::milliseconds(100);
constexpr std::size_t kMuch = std::size_t{1} << 20;
/// Most bytes per write(), so that progress becomes visible soon.
constexpr std::size_t kAtOnce = std::size_t{1} << 20;
constexpr auto kPatienceAtTheEnd = std::chrono::seconds(5);

/// How many of the first `size` bytes are whole blocks: each block has its length behind its type
/// (draft-ietf-opsawg-pcapng-02 3.1).
std::size_t whole_blocks(std::span<const std::byte> blocks, std::size_t size) {
  std::size_t at = 0;
  while (at + 8 <= size) {
    const auto next = at + util::load_le32(&blocks[at + 4]);
    if (next > size) break;
    at = next;
  }
  return at;
}

/// Opens or creates a file. In a world-writable directory, another user may plant a link to a file
/// of this user. A link to a pipe or a terminal, such as /dev/stdout, does no harm.
int open_output(const std::string& path, bool& is_link) {
  constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
  const int fd = ::open(path.c_str(), kFlags | O_CREAT | O_NOFOLLOW, 0600);
  is_link = fd < 0 && errno == ELOOP;
  return is_link ? ::open(path.c_str(), kFlags) : fd;
}

/// The current file.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile() { close(); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Empties an existing file of this name.
  util::Result<void> open(const std::string& path) {
    close();
    bool is_link = false;
    fd_ = open_output(path, is_link);
    struct stat status;
    if (fd_ < 0 || ::fstat(fd_, &status) != 0) {
      return util::fail_errno("cannot create capture file " + path);
    }
    regular_ = S_ISREG(status.st_mode);
    size_ = 0;
    if (!regular_) return {};
    if (is_link) return util::fail("capture file " + path + " is a symbolic link");
    // The file's owner could read the capture, whatever the mode is.
    if (status.st_uid != ::geteuid()) {
      return util::fail("capture file " + path + " is another user's file");
    }
    // The capture contains guests' data, so an existing file must not be readable by others.
    // no format: permissions of POSIX
    if ((status.st_mode & 07777) != 0600 && ::fchmod(fd_, 0600) != 0) {
      return util::fail_errno("cannot keep others from reading capture file " + path);
    }
    if (::ftruncate(fd_, 0) != 0) return util::fail_errno("cannot empty capture file " + path);
    return {};
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  /// Total of all files.
  std::uint64_t written() const { return written_.load(std::memory_order_relaxed); }

  /// Writes all blocks; after a failure no partial block remains.
  util::Result<void> write(std::span<const std::byte> blocks) {
    for (std::size_t done = 0; done != blocks.size();) {
      const auto size = std::min(blocks.size() - done, kAtOnce);
      const auto written = ::write(fd_, blocks.data() + done, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        auto error = util::fail_errno("the file cannot be written");
        const auto whole = size_ + whole_blocks(blocks, done);
        if (regular_) (void)!::ftruncate(fd_, static_cast<off_t>(whole));
        return error;
      }
      done += static_cast<std::size_t>(written);
      written_.fetch_add(static_cast<std::uint64_t>(written), std::memory_order_relaxed);
    }
    size_ += blocks.size();
    return {};
  }

 private:
  int fd_ = -1;
  bool regular_ = false;
  std::size_t size_ = 0;
  std::atomic<std::uint64_t> written_ = 0;
};

/// Blocks that are written together.
struct Batch {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> files_at;  ///< offsets at which a new file begins

  bool empty() const { return bytes.empty() && files_at.empty(); }
  void clear() {
    bytes.clear();
    files_at.clear();
  }
};

}  // namespace

/// State shared by the thread and the writer, which may be destroyed first.
struct CaptureWriter::State {
  State(std::string to, unsigned count) : path(std::move(to)), files(count) {
    waiting.bytes.reserve(kCapacity);
    taken.bytes.reserve(kCapacity);
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !waiting.empty(); });
      if (waiting.empty()) break;
      changed.wait_for(lock, kDelay, [this] { return ended || waiting.bytes.size() >= kMuch; });
      std::swap(waiting, taken);
      lock.unlock();
      const auto written = write(taken);
      lock.lock();
      taken.clear();
      if (written) continue;
      reason = written.error().message;
      failed.store(true, std::memory_order_release);
      break;
    }
    file.close();
    finished = true;
    changed.notify_all();
  }

  util::Result<void> write(const Batch& batch) {
    const std::span all(batch.bytes);
    std::size_t at = 0;
    for (const auto next : batch.files_at) {
      if (auto good = file.write(all.subspan(at, next - at)); !good) return good;
      at = next;
      index = (index + 1) % files;
      if (auto good = file.open(name_of(path, files, index)); !good) return good;
    }
    return file.write(all.subspan(at));
  }

  const std::string path;
  const unsigned files;
  unsigned index = 0;  ///< of the current file
  OutputFile file;
  Batch taken;  ///< owned by the thread
  std::atomic<bool> failed = false;
  std::string reason;  ///< why it failed
  std::mutex mutex;    ///< guards the members below
  std::condition_variable changed;
  Batch waiting;
  bool ended = false;
  bool finished = false;
};

std::string CaptureWriter::name_of(const std::string& path, unsigned files, unsigned index) {
  if (files == 1) return path;
  return fmt::format("{}{:0{}}", path, index, fmt::formatted_size("{}", files - 1));
}

util::Result<std::unique_ptr<CaptureWriter>> CaptureWriter::create(std::string path,
                                                                   unsigned files) {
  auto state = std::make_shared<State>(std::move(path), files);
  if (auto good = state->file.open(name_of(state->path, files, 0)); !good) {
    return tl::unexpected(good.error());
  }
  try {
    return std::unique_ptr<CaptureWriter>(new CaptureWriter(std::move(state)));
  } catch (const std::system_error& error) {
    return util::fail(fmt::format("cannot start the thread of a capture: {}", error.what()));
  }
}

CaptureWriter::CaptureWriter(std::shared_ptr<State> state) : state_(std::move(state)) {
  // Other threads handle signals. SIGPIPE and SIGXFSZ, which a write may raise, would end the
  // process.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([shared = state_] { shared->run(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CaptureWriter::~CaptureWriter() { (void)finish(); }

util::Result<void> CaptureWriter::finish() {
  std::unique_lock lock(state_->mutex);
  const bool again = std::exchange(state_->ended, true);
  state_->changed.notify_all();
  const auto patience = again ? std::chrono::seconds(0) : kPatienceAtTheEnd;
  if (!state_->changed.wait_for(lock, patience, [this] { return state_->finished; })) {
    return util::fail("the rest of it is not written in time");
  }
  if (failed()) return util::fail(reason());
  return {};
}

bool CaptureWriter::put(std::span<const std::byte> blocks) {
  const std::lock_guard lock(state_->mutex);
  auto& bytes = state_->waiting.bytes;
  const auto size = bytes.size();
  if (size + blocks.size() > kCapacity) return false;
  bytes.insert(bytes.end(), blocks.begin(), blocks.end());
  if (size == 0 || (size < kMuch && bytes.size() >= kMuch)) state_->changed.notify_all();
  return true;
}

std::size_t CaptureWriter::room() const {
  const std::lock_guard lock(state_->mutex);
  const auto size = state_->waiting.bytes.size();
  return failed() ? SIZE_MAX : kCapacity - std::min(size, kCapacity);
}

std::uint64_t CaptureWriter::written() const { return state_->file.written(); }

void CaptureWriter::put_always(std::span<const std::byte> blocks) {
  const std::lock_guard lock(state_->mutex);
  auto& bytes = state_->waiting.bytes;
  bytes.insert(bytes.end(), blocks.begin(), blocks.end());
  state_->changed.notify_all();
}

void CaptureWriter::next_file() {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.files_at.push_back(state_->waiting.bytes.size());
  state_->changed.notify_all();
}

bool CaptureWriter::failed() const { return state_->failed.load(std::memory_order_acquire); }

std::string CaptureWriter::reason() const { return state_->reason; }

}  // namespace softhca::fabric
