#include "os/memory_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace softhca::os {
namespace {

/// Read by the signal handler, in any thread, while other threads change it. Only members of one
/// version belong together. Loads acquire and stores release, so that none passes the version's.
struct Range {
  std::atomic<std::uint32_t> version = 0;  ///< even: free, or being changed
  std::atomic<std::byte*> start = nullptr;
  std::atomic<std::size_t> size = 0;
  std::atomic<std::size_t> page = 0;
  std::atomic<MemoryOwner*> owner = nullptr;
};

struct Guarded {
  MappedFile file;
  MemoryOwner* owner = nullptr;
};

std::array<Range, MemoryGuard::kMaxRanges> ranges;
std::atomic<std::size_t> used_ranges = 0;  ///< no range is used from this index on
struct sigaction action_before;

/// Shared by the threads of the loops; the handler does not access it.
std::mutex mutex;
std::vector<std::uint32_t> free_ranges;
std::unordered_map<std::uintptr_t, std::uint32_t> places;  ///< by the address used

bool map_zeros(std::uintptr_t from, std::uintptr_t end) {
  return ::mmap(reinterpret_cast<void*>(from), end - from, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

Guarded read(const Range& range) {
  return {.file = {.start = range.start.load(std::memory_order_acquire),
                   .size = range.size.load(std::memory_order_acquire),
                   .page = range.page.load(std::memory_order_acquire)},
          .owner = range.owner.load(std::memory_order_acquire)};
}

/// The guarded file that contains `address`. @pre the address is in use, so that no thread removes
/// the file meanwhile
std::optional<Guarded> find_guarded(std::uintptr_t address) {
  const auto end = used_ranges.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < end; ++i) {
    const auto& range = ranges[i];
    const auto version = range.version.load(std::memory_order_acquire);
    if (version % 2 == 0) continue;
    const auto found = read(range);
    if (address - reinterpret_cast<std::uintptr_t>(found.file.start) >= found.file.size) continue;
    // If it has changed, another thread has reused the place, and the address is not there.
    if (range.version.load(std::memory_order_relaxed) == version) return found;
  }
  return std::nullopt;
}

/// True if `address` is guarded memory; it is accessible again then.
bool replace(std::uintptr_t address) {
  const auto found = find_guarded(address);
  if (!found) return false;
  // Replaces the rest of the file in one call: there are no pages beyond the end of a file that
  // would have to be freed.
  const auto& file = found->file;
  const auto end = reinterpret_cast<std::uintptr_t>(file.start) + file.size;
  if (!map_zeros(address / file.page * file.page, end)) return false;
  found->owner->lost.store(true);
  if (found->owner->notice != nullptr) found->owner->notice->raise();
  return true;
}

void handle_sigbus(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  // Not guarded: the instruction is retried with the previous handler.
  if (!replace(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    ::sigaction(SIGBUS, &action_before, nullptr);
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
  [[maybe_unused]] const auto set = ::sigaction(SIGBUS, &action, &action_before);
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
  range.start.store(file.start, std::memory_order_release);
  range.size.store(file.size, std::memory_order_release);
  range.page.store(file.page, std::memory_order_release);
  range.owner.store(&owner, std::memory_order_release);
  range.version.fetch_add(1, std::memory_order_release);
  return true;
}

std::optional<MappedFile> MemoryGuard::find(const std::byte* address) {
  const auto found = find_guarded(reinterpret_cast<std::uintptr_t>(address));
  if (!found) return std::nullopt;
  return found->file;
}

std::optional<MappedFile> MemoryGuard::remove(std::byte* used) {
  const std::lock_guard lock(mutex);
  const auto found = places.find(reinterpret_cast<std::uintptr_t>(used));
  if (found == places.end()) return std::nullopt;
  auto& range = ranges[found->second];
  range.version.fetch_add(1, std::memory_order_release);
  free_ranges.push_back(found->second);
  places.erase(found);
  return read(range).file;
}

}  // namespace softhca::os
