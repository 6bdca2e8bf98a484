#include "door/kernel.h"

#include <pthread.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "door/engine.h"
#include "door/inline_progress.h"
#include "door/tree/tree.h"
#include "util/log.h"

namespace softhca::door {
namespace {

/// Never destroyed: the program may use the device until its very end.
std::atomic<Engine*> engine = nullptr;
std::mutex making;

/// A child has the descriptors and the memory, but not the thread: it makes an engine of its own.
void forget_in_child() {
  if (auto* parents = engine.exchange(nullptr); parents != nullptr) parents->leave_to_parent();
}

/// The program's standard error is the program's: SOFTHCA_LOG=debug, info, warning or error says
/// how much of it we may use.
void choose_log_level() {
  using util::LogLevel;
  const char* const given = std::getenv("SOFTHCA_LOG");
  const std::string_view word = given == nullptr ? "" : given;
  util::set_log_level(word == "debug"   ? LogLevel::kDebug
                      : word == "info"  ? LogLevel::kInfo
                      : word == "error" ? LogLevel::kError
                                        : LogLevel::kWarning);
}

std::string word_of(const char* name) {
  const char* const given = std::getenv(name);
  return given == nullptr ? "" : given;
}

/// Between commas.
std::vector<std::string> words_of(const char* name) {
  std::vector<std::string> words;
  std::istringstream all(word_of(name));
  for (std::string word; std::getline(all, word, ',');) words.push_back(word);
  return words;
}

Engine* make() {
  const std::lock_guard held(making);
  if (auto* made = engine.load(); made != nullptr) return made;
  const char* directory = std::getenv("SOFTHCA_DOOR");
  if (directory == nullptr) return nullptr;
  choose_log_level();
  auto made = Engine::create(
      {.directory = directory,
       .numbers = parse_device_numbers(word_of(kDevicesVariable)).value_or(DeviceNumbers{}),
       .addresses = words_of("SOFTHCA_ADDRESS"),
       .control = word_of("SOFTHCA_CONTROL"),
       .loss = FrameLoss::parse(word_of("SOFTHCA_LOSS"))});
  if (!made) {
    util::log(util::LogLevel::kError, "{}", made.error().message);
    return nullptr;
  }
  static const int registered = ::pthread_atfork(nullptr, nullptr, forget_in_child);
  (void)registered;
  engine = made->release();
  return engine;
}

[[gnu::destructor]] void stop_at_exit() {
  if (auto* made = engine.load(); made != nullptr) made->stop();
}

}  // namespace

void progress_in_call() {
  if (auto* made = engine.load(); made != nullptr) made->progress();
}

int open_uverbs(unsigned number, int) {
  auto* made = make();
  return made == nullptr ? -EIO : made->open(number);
}

namespace {

std::atomic<bool> channels = false;

}  // namespace

int open_rdma_cm() {
  auto* made = make();
  if (made == nullptr) return -EIO;
  channels.store(true, std::memory_order_relaxed);
  return made->open_rdma_cm();
}

bool has_channels() { return channels.load(std::memory_order_relaxed); }

bool serve_write(int fd, const void* bytes, std::size_t size, ssize_t& result) {
  auto* made = engine.load();
  return made != nullptr && made->serve_rdma_cm(fd, bytes, size, result);
}

std::uint64_t device_of_channel(dev_t dev, ino_t inode) {
  auto* made = engine.load();
  const bool ours = made != nullptr && made->owns_channel(dev, inode);
  return ours ? ::makedev(kRdmaCmMajor, kRdmaCmMinor) : 0;
}

std::uint64_t device_of(dev_t dev, ino_t inode) {
  auto* made = engine.load();
  const auto number = made == nullptr ? std::nullopt : made->owner(dev, inode);
  return number ? ::makedev(kUverbsMajor, kUverbsMinor + *number) : 0;
}

bool serve_ioctl(int fd, void* argument, int& result) {
  auto* made = engine.load();
  return made != nullptr && made->serve(fd, argument, result);
}

}  // namespace softhca::door
