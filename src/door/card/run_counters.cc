#include "door/card/run_counters.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "os/file_size.h"
#include "os/unique_fd.h"

namespace softhca::door {

RunCounters::RunCounters(const std::string& directory, std::string_view device)
    : path_(fmt::format("{}/counters-{}", directory, device)) {
  const os::UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  // New bytes are zero, whichever process extends the file. Allocate its blocks: on a full file
  // system a page without one would raise SIGBUS.
  if (!fd || !os::set_file_size(fd.get(), sizeof(Shared), path_)) return;
  if (::posix_fallocate(fd.get(), 0, sizeof(Shared)) != 0) return;
  void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at != MAP_FAILED) shared_ = static_cast<Shared*>(at);
}

RunCounters::~RunCounters() {
  if (shared_ != &own_) ::munmap(shared_, sizeof(Shared));
}

void RunCounters::add(const uverbs::DeviceCounters& now) {
  for (std::size_t i = 0; i != now.size(); ++i) {
    // A 32-bit counter may have wrapped.
    const auto grown = now[i] - added_[i];
    const auto more = now[i] < added_[i] ? static_cast<std::uint32_t>(grown) : grown;
    if (more != 0) (*shared_)[i].fetch_add(more, std::memory_order_relaxed);
  }
  added_ = now;
}

uverbs::DeviceCounters RunCounters::read() const {
  uverbs::DeviceCounters all{};
  if (shared_ == &own_) {
    for (std::size_t i = 0; i != all.size(); ++i) all[i] = own_[i].load(std::memory_order_relaxed);
    return all;
  }
  // O_NONBLOCK: if it is a FIFO now, do not wait for a writer.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const os::UniqueFd fd(::open(path_.c_str(), kFlags));
  // A truncated file reads as zeros.
  (void)!::pread(fd.get(), all.data(), sizeof all, 0);
  return all;
}

}  // namespace softhca::door
