#include "door/doorbell_traps.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace softhca::door {
namespace {

struct Range {
  std::uint64_t begin = 0, end = 0;
};

/// A program has one page or a few; where it has more, the engine stays awake.
constexpr std::size_t kRangesMax = 256;
/// What the handler looks at. It stays when the traps are gone, since a store that met them may be
/// handled later.
constinit std::array<Range, kRangesMax> ranges{};
constinit std::atomic<std::size_t> range_count = 0;
constinit std::atomic<int> wake_fd = -1;

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

bool protect(const Range& range, int how) {
  return ::mprotect(reinterpret_cast<void*>(range.begin), range.end - range.begin, how) == 0;
}

/// A thread that blocks SIGSEGV would end with the process where another is called.
bool a_thread_blocks_faults() {
  constexpr std::string_view kBlocked = "SigBlk:";
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with(kBlocked)) continue;
      const auto mask = std::strtoull(line.c_str() + kBlocked.size(), nullptr, 16);
      if ((mask >> (SIGSEGV - 1) & 1) != 0) return true;
      break;
    }
  }
  return static_cast<bool>(error);
}

/// The program's mappings of its device files that it may write to. False: more than there is room
/// for.
bool find_pages(const std::function<bool(dev_t, ino_t)>& is_ours) {
  std::size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Range range;
    char access[5] = "";
    unsigned major = 0, minor = 0;
    std::uint64_t inode = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %*x %x:%x %" SCNu64, &range.begin,
                    &range.end, access, &major, &minor, &inode) != 6 ||
        inode == 0 || access[1] != 'w' || !is_ours(makedev(major, minor), inode)) {
      continue;
    }
    if (count == kRangesMax) return false;
    ranges[count++] = range;
  }
  range_count.store(count, std::memory_order_release);
  return true;
}

}  // namespace

bool arm_doorbell_traps(const std::function<bool(dev_t, ino_t)>& is_ours, int wake) {
  static const bool helps = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  if (!helps || a_thread_blocks_faults() || !find_pages(is_ours)) return false;
  wake_fd.store(wake, std::memory_order_release);
  for (const auto& range : std::span(ranges).first(range_count)) {
    if (protect(range, PROT_READ)) continue;
    disarm_doorbell_traps();
    return false;
  }
  // What processors have stored and not yet told of is told of now.
  return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void disarm_doorbell_traps() {
  for (const auto& range : std::span(ranges).first(range_count)) {
    (void)protect(range, PROT_READ | PROT_WRITE);
  }
}

bool trap_doorbell(const void* address) {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  for (const auto& range : std::span(ranges).first(range_count.load(std::memory_order_acquire))) {
    if (at < range.begin || at >= range.end) continue;
    if (!protect(range, PROT_READ | PROT_WRITE)) return false;
    const std::uint64_t one = 1;
    (void)!::write(wake_fd.load(std::memory_order_acquire), &one, sizeof one);
    return true;
  }
  return false;
}

}  // namespace softhca::door
