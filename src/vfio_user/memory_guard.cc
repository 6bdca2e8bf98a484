#include "vfio_user/memory_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace softhca::vfio_user {
namespace {

/// Read by the signal handler, in any thread, while other threads change it: `start` is set last
/// and cleared first.
struct Range {
  std::atomic<std::uintptr_t> start = 0;  ///< 0: free
  std::atomic<std::size_t> size = 0;
  std::atomic<std::size_t> page = 0;
  std::atomic<MemoryOwner*> owner = nullptr;
};

std::array<Range, MemoryGuard::kMaxRanges> ranges;
std::atomic<std::size_t> used_ranges = 0;  ///< no range is used from this index on
struct sigaction before;

/// Shared by the threads of the loops; the handler does not access it.
std::mutex mutex;
std::vector<std::uint32_t> free_ranges;
std::unordered_map<std::uintptr_t, std::uint32_t> places;  ///< by the address used

bool map_zeros(std::uintptr_t from, std::uintptr_t end) {
  return ::mmap(reinterpret_cast<void*>(from), end - from, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/// True if `address` is guarded memory; it is accessible again then.
bool replace(std::uintptr_t address) {
  const auto end = used_ranges.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < end; ++i) {
    auto& range = ranges[i];
    const auto start = range.start.load(std::memory_order_acquire);
    if (start == 0 || address - start >= range.size.load(std::memory_order_relaxed)) continue;
    // Replaces the rest of the range in one call: there are no pages beyond the end of a file that
    // would have to be freed.
    const auto range_end = start + range.size.load(std::memory_order_relaxed);
    const auto page = range.page.load(std::memory_order_relaxed);
    if (!map_zeros(address / page * page, range_end)) return false;
    auto* owner = range.owner.load(std::memory_order_relaxed);
    owner->lost.store(true);
    if (owner->notice != nullptr) owner->notice->raise();
    return true;
  }
  return false;
}

void handle_sigbus(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  // Not guarded: the instruction is retried with the previous handler.
  if (!replace(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    ::sigaction(SIGBUS, &before, nullptr);
  }
  errno = saved_errno;
}

}  // namespace

MemoryGuard& MemoryGuard::instance() {
  static MemoryGuard guard;
  return guard;
}

MemoryGuard::MemoryGuard() {
  // Reserved, so that growing tables delay no thread, and remove() needs no memory.
  places.reserve(kMaxRanges);
  free_ranges.reserve(kMaxRanges);
  struct sigaction action{};
  action.sa_sigaction = handle_sigbus;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  [[maybe_unused]] const auto set = ::sigaction(SIGBUS, &action, &before);
  assert(set == 0);
}

bool MemoryGuard::add(const MappedFile& file, std::byte* used, MemoryOwner& owner) {
  const std::lock_guard lock(mutex);
  const auto next = used_ranges.load(std::memory_order_relaxed);
  if (free_ranges.empty() && next == kMaxRanges) return false;
  const auto place = free_ranges.empty() ? static_cast<std::uint32_t>(next) : free_ranges.back();
  places.emplace(reinterpret_cast<std::uintptr_t>(used), place);
  if (free_ranges.empty()) {
    used_ranges.store(next + 1, std::memory_order_release);
  } else {
    free_ranges.pop_back();
  }
  auto& range = ranges[place];
  range.size.store(file.size, std::memory_order_relaxed);
  range.page.store(file.page, std::memory_order_relaxed);
  range.owner.store(&owner, std::memory_order_relaxed);
  range.start.store(reinterpret_cast<std::uintptr_t>(file.start), std::memory_order_release);
  return true;
}

std::optional<MappedFile> MemoryGuard::remove(std::byte* used) {
  const std::lock_guard lock(mutex);
  const auto found = places.find(reinterpret_cast<std::uintptr_t>(used));
  if (found == places.end()) return std::nullopt;
  auto& range = ranges[found->second];
  const auto start = range.start.load(std::memory_order_relaxed);
  range.start.store(0, std::memory_order_release);
  free_ranges.push_back(found->second);
  places.erase(found);
  return MappedFile{.start = reinterpret_cast<std::byte*>(start),
                    .size = range.size.load(std::memory_order_relaxed),
                    .page = range.page.load(std::memory_order_relaxed)};
}

}  // namespace softhca::vfio_user
