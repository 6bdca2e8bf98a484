#include "door/engine/device_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "door/process/descriptors.h"
#include "util/log.h"

namespace softhca::door {
namespace {

/// `file` must outlive the context. `fd`: the program's descriptor.
uverbs::Context::Options context_options(const DeviceFile& file, int fd,
                                         void (*made_cq)(std::uint64_t, int)) {
  return {.give =
              [](os::UniqueFd given) {
                const int number = ::fcntl(given.get(), F_DUPFD_CLOEXEC, 0);
                if (number < 0) return -errno;
                Descriptors::note(number);
                return number;
              },
          .take_back =
              [](int number) {
                Descriptors::forget(number);
                ::close(number);
              },
          .identify = [](int number) -> std::uint64_t {
            struct stat status{};
            return ::fstat(number, &status) == 0 ? status.st_ino : 0;
          },
          .copy = [](int number) { return os::UniqueFd(::fcntl(number, F_DUPFD_CLOEXEC, 0)); },
          .made_cq = [fd, made_cq](std::uint64_t user_handle) { made_cq(user_handle, fd); },
          .store = [&file](auto offset, auto bytes) { return file.store(offset, bytes); },
          .wall_clock = [] { return std::chrono::system_clock::now().time_since_epoch(); }};
}

}  // namespace

int DeviceFiles::open(Card& card, unsigned place, unsigned number) {
  int fd = -1;
  auto file = DeviceFile::create(fd);
  if (!file) {
    util::log(util::LogLevel::kError, "mlx5_{}: {}", number, file.error().message);
    return fd;
  }
  const auto inode = file->inode();
  try {
    // The map must not move the entry while its context exists.
    auto& entry = files_.emplace(inode, File{*std::move(file), place, nullptr}).first->second;
    entry.context = std::make_unique<uverbs::Context>(
        card.device(), memory_, context_options(entry.file, fd, options_.made_cq));
    known_.add(entry.file.device(), inode, number);
  } catch (...) {
    // No turn may find a file without a context.
    files_.erase(inode);
    ::close(fd);
    throw;
  }
  return fd;
}

uverbs::Context* DeviceFiles::find(dev_t device, ino_t inode) const {
  const auto at = files_.find(inode);
  return at == files_.end() || at->second.file.device() != device ? nullptr
                                                                  : at->second.context.get();
}

void DeviceFiles::drop_closed() {
  std::erase_if(files_, [this](const auto& entry) {
    const auto& file = entry.second.file;
    if (!file.closed()) return false;
    known_.remove(file.device(), file.inode());
    return true;
  });
}

}  // namespace softhca::door
