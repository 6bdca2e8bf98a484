// The engine's device files: opened by the program, and destroyed when it has closed them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "door/descriptors.h"
#include "door/engine.h"
#include "door/fault_guard.h"
#include "door/inline_progress.h"
#include "util/log.h"

namespace softhca::door {
namespace {

/// `file` must outlive the context. `fd`: the program's descriptor.
uverbs::Context::Options context_options(const DeviceFile& file, int fd) {
  return {
      .give =
          [](vfio_user::UniqueFd given) {
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
      .copy = [](int number) { return vfio_user::UniqueFd(::fcntl(number, F_DUPFD_CLOEXEC, 0)); },
      .made_cq = [fd](std::uint64_t user_handle) { wrap_poll(user_handle, fd); },
      .store = [&file](auto offset, auto bytes) { return file.store(offset, bytes); },
      .wall_clock = [] { return std::chrono::system_clock::now().time_since_epoch(); }};
}

}  // namespace

int Engine::open(unsigned uverbs) {
  // A number below the first wraps around, and so is too high.
  const auto which = uverbs - options_.numbers.first;
  if (!make_card(which)) return which < cards_.size() ? -EIO : -ENODEV;
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  ++calls_;
  drop_closed();
  int fd = -1;
  auto file = DeviceFile::create(fd);
  if (!file) {
    util::log(util::LogLevel::kError, "mlx5_{}: {}", uverbs, file.error().message);
    return fd;
  }
  const auto inode = file->inode();
  try {
    // The map must not move the entry while its context exists.
    auto& entry = files_.emplace(inode, File{*std::move(file), which, nullptr}).first->second;
    entry.context = std::make_unique<uverbs::Context>(cards_[which]->device(), memory_,
                                                      context_options(entry.file, fd));
    known_files_.add(entry.file.device(), inode, uverbs);
  } catch (...) {
    // No turn may find a file without a context.
    files_.erase(inode);
    ::close(fd);
    throw;
  }
  return fd;
}

std::optional<unsigned> Engine::owner(dev_t device, ino_t inode) {
  return known_files_.find(device, inode);
}

/// Destroys the contexts whose files the program has closed.
void Engine::drop_closed() {
  std::erase_if(files_, [this](const auto& entry) {
    const auto& file = entry.second.file;
    if (!file.closed()) return false;
    known_files_.remove(file.device(), file.inode());
    return true;
  });
  if (rdma_cm_ != nullptr) rdma_cm_->drop_closed();
}

void Engine::note_closed() {
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  drop_closed();
  for (auto& [inode, file] : files_) file.context->drop_closed();
  // Stop watching doorbell pages of destroyed contexts soon.
  if (sleeps_long_) poke();
}

}  // namespace softhca::door
