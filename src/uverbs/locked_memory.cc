#include "uverbs/locked_memory.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "util/bits.h"
#include "util/log.h"
#include "uverbs/program_pages.h"

namespace softhca::uverbs {

namespace {

/// In its own user namespace, since root of a container is meant to be free of limits. Linux asks
/// for the capability in the first one.
bool may_lock_all() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return false;
  return util::has_bit(sets[0].effective, CAP_IPC_LOCK);
}

}  // namespace

LockedMemory::Limit LockedMemory::of_process() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {.bytes = 0, .binds = false};
  return {.bytes = limit.rlim_cur, .binds = !may_lock_all()};
}

Errno LockedMemory::add(std::uint64_t pages) {
  const auto limit = limit_();
  const auto most = limit.bytes / kPage;
  const bool fits = pages <= most && pages_ <= most - pages;
  if (!fits && limit.binds) {
    const bool refuses = beyond_ == Beyond::kRefusal;
    if (!std::exchange(has_warned_, true)) {
      util::log(util::LogLevel::kWarning,
                "{} KiB of memory are registered, but only {} KiB may be locked (ulimit -l): {}. "
                "`ulimit -l unlimited` allows it",
                (pages_ + pages) * (kPage / 1024), limit.bytes / 1024,
                refuses ? "refused" : "a card refuses this with ENOMEM");
    }
    if (refuses) return limit.bytes == 0 ? EPERM : ENOMEM;
  }
  pages_ += pages;
  return 0;
}

Errno LockedPages::take(LockedMemory* memory, std::uint64_t address, std::uint64_t size) {
  if (memory == nullptr || size == 0) return 0;
  const auto pages = pages_of(address, size);
  if (const auto wrong = memory->add(pages); wrong != 0) return wrong;
  memory_ = memory;
  pages_ = pages;
  return 0;
}

}  // namespace softhca::uverbs
