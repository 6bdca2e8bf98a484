#include "door/run_counters.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/file_size.h"
#include "vfio_user/unique_fd.h"

namespace softhca::door {

RunCounters::RunCounters(const std::string& directory, std::string_view device) {
  const auto path = fmt::format("{}/counters-{}", directory, device);
  const vfio_user::UniqueFd fd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  // New bytes are zero, whichever process extends the file. Allocate its blocks: on a full file
  // system a page without one would raise SIGBUS.
  if (!fd || !util::set_file_size(fd.get(), sizeof(Shared), path)) return;
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
  uverbs::DeviceCounters all;
  for (std::size_t i = 0; i != all.size(); ++i) {
    all[i] = (*shared_)[i].load(std::memory_order_relaxed);
  }
  return all;
}

}  // namespace softhca::door
