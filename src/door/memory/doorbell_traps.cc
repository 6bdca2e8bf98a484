#include "door/memory/doorbell_traps.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
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
#include <span>
#include <string>

#include "door/memory/memory_map.h"
#include "door/memory/pages.h"
#include "util/bits.h"

namespace softhca::door {
namespace {

/// Pages of a file.
struct Range {
  std::uint64_t begin = 0, end = 0;
  dev_t device = 0;
  ino_t inode = 0;
};

/// Programs have one page or a few. If a program has more than this, the engine stays awake.
constexpr std::size_t kRangesMax = 256;
/// The trapped ranges, for the signal handler. They outlive the traps, since a fault may be handled
/// late, even while the next ranges are being written.
class Trapped {
 public:
  /// One thread at a time may call this; it must not store to a doorbell page meanwhile.
  void set(std::span<const Range> all) {
    const auto version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i != all.size(); ++i) {
      ranges_[i].begin.store(all[i].begin, std::memory_order_relaxed);
      ranges_[i].end.store(all[i].end, std::memory_order_relaxed);
      ranges_[i].device.store(all[i].device, std::memory_order_relaxed);
      ranges_[i].inode.store(all[i].inode, std::memory_order_relaxed);
    }
    count_.store(all.size(), std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }
  std::size_t count() const { return count_.load(std::memory_order_relaxed); }
  Range at(std::size_t i) const {
    return {ranges_[i].begin.load(std::memory_order_relaxed),
            ranges_[i].end.load(std::memory_order_relaxed),
            ranges_[i].device.load(std::memory_order_relaxed),
            ranges_[i].inode.load(std::memory_order_relaxed)};
  }
  /// The range of `address`, if there is one, from a consistent set. Safe in a signal handler.
  Range find(std::uint64_t address) const {
    for (;;) {
      const auto version = version_.load(std::memory_order_acquire);
      const auto found = look(address);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (version % 2 == 0 && version == version_.load(std::memory_order_relaxed)) return found;
    }
  }

 private:
  struct Place {
    std::atomic<std::uint64_t> begin = 0, end = 0;
    std::atomic<dev_t> device = 0;
    std::atomic<ino_t> inode = 0;
  };
  Range look(std::uint64_t address) const {
    for (std::size_t i = 0, all = count(); i != all; ++i) {
      const auto range = at(i);
      if (address >= range.begin && address < range.end) return range;
    }
    return {};
  }

  std::atomic<std::uint64_t> version_ = 0;  ///< odd: an update is in progress
  std::array<Place, kRangesMax> ranges_{};
  std::atomic<std::size_t> count_ = 0;
};
constinit Trapped trapped;
constinit std::atomic<int> wake_fd = -1;

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

bool protect(const Range& range, int how) {
  return ::mprotect(reinterpret_cast<void*>(range.begin), range.end - range.begin, how) == 0;
}

/// If SIGSEGV is blocked in a thread that hits a trap, the kernel kills the process.
bool a_thread_blocks_faults() {
  constexpr std::string_view kBlocked = "SigBlk:";
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with(kBlocked)) continue;
      const auto mask = std::strtoull(line.c_str() + kBlocked.size(), nullptr, 16);
      if (util::has_bit(mask, SIGSEGV - 1)) return true;
      break;
    }
  }
  return static_cast<bool>(error);
}

/// Calls `visit(range, may_write)` for the program's mappings of its device files. False:
/// /proc/self/maps cannot be read.
template <class Visit>
bool for_each_page(const IsDoorbellFile& is_ours, Visit&& visit) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return false;
  for (std::string line; std::getline(maps, line);) {
    Range range;
    char access[5] = "";
    unsigned major = 0, minor = 0;
    std::uint64_t inode = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %*x %x:%x %" SCNu64, &range.begin,
                    &range.end, access, &major, &minor, &inode) != 6) {
      continue;
    }
    range.device = makedev(major, minor);
    range.inode = inode;
    if (inode != 0 && is_ours(range.device, inode)) visit(range, access[1] == 'w');
  }
  return true;
}

/// Collects the writable mappings. False: /proc/self/maps cannot be read, or there are too many.
bool find_pages(const IsDoorbellFile& is_ours) {
  std::array<Range, kRangesMax> found;
  std::size_t count = 0;
  const bool read = for_each_page(is_ours, [&](const Range& range, bool may_write) {
    if (may_write && count++ < kRangesMax) found[count - 1] = range;
  });
  if (!read || count > kRangesMax) return false;
  trapped.set(std::span(found).first(count));
  return true;
}

/// Keeps only trapped ranges that still map a device file. The program may have unmapped others,
/// and mapped anything else there.
bool keep_what_stands(const IsDoorbellFile& is_ours) {
  std::array<Range, kRangesMax> left;
  std::size_t count = 0;
  const bool read = for_each_page(is_ours, [&](const Range& range, bool) {
    for (std::size_t i = 0; i != trapped.count() && count != kRangesMax; ++i) {
      const auto was = trapped.at(i);
      const Range both{std::max(range.begin, was.begin), std::min(range.end, was.end), range.device,
                       range.inode};
      if (both.begin < both.end) left[count++] = both;
    }
  });
  if (read) trapped.set(std::span(left).first(count));
  return read;
}

/// Whether the page is still of the range's file. The program may have unmapped that, and mapped
/// anything else there. True if the kernel cannot be asked (before Linux 6.11): reading all of
/// /proc/self/maps would make a doorbell slow.
bool still_maps(const Range& range, std::uint64_t page) {
  bool found = false;
  const IsFile is_wanted = [&range](dev_t device, ino_t inode) {
    return device == range.device && inode == range.inode;
  };
  return maps_file_by_query(page, page + kPage, is_wanted, found) != 0 || found;
}

}  // namespace

bool arm_doorbell_traps(const IsDoorbellFile& is_ours, int wake) {
  static const bool helps = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  if (!helps || a_thread_blocks_faults() || !find_pages(is_ours)) return false;
  wake_fd.store(wake, std::memory_order_release);
  for (std::size_t i = 0; i != trapped.count(); ++i) {
    if (protect(trapped.at(i), PROT_READ)) continue;
    disarm_doorbell_traps(is_ours);
    return false;
  }
  // A barrier on all processors: makes stores in flight visible.
  return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void disarm_doorbell_traps(const IsDoorbellFile& is_ours) {
  // If the maps cannot be read, assume that all ranges are still doorbell pages: they must work.
  (void)keep_what_stands(is_ours);
  for (std::size_t i = 0; i != trapped.count(); ++i) {
    (void)protect(trapped.at(i), PROT_READ | PROT_WRITE);
  }
}

void forget_doorbell_traps() {
  if (trapped.count() != 0) trapped.set({});
}

void leave_doorbell_traps_to_parent() { wake_fd.store(-1, std::memory_order_release); }

bool trap_doorbell(const void* address) {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const auto range = trapped.find(at);
  // Unprotects this page alone: its neighbors may have been replaced by other mappings.
  const auto page = at & ~(kPage - 1);
  if (range.end == 0 || !still_maps(range, page)) return false;
  if (!protect({.begin = page, .end = page + kPage}, PROT_READ | PROT_WRITE)) return false;
  const std::uint64_t one = 1;
  (void)!::write(wake_fd.load(std::memory_order_acquire), &one, sizeof one);
  return true;
}

}  // namespace softhca::door
