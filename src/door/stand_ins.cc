#include "door/stand_ins.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>

#include "door/memory_map.h"
#include "door/pages.h"

namespace softhca::door {
namespace {

/// An instruction touches at most four pages.
constexpr std::size_t kOpenMax = 8;
/// Most stand-ins of one turn: 16 MiB. Further pages stay where they are.
constexpr std::size_t kStandInsMax = 4096;
/// Page sizes of the processor: a mapping of huge pages can be moved only by whole pages.
constexpr std::array<std::uint64_t, 3> kPageSizes = {kPage, std::uint64_t{2} << 20,
                                                     std::uint64_t{1} << 30};

struct Opened {
  std::uint64_t page = 0;
  int protection = 0;
};
constinit std::array<Opened, kOpenMax> opened{};

struct StandIn {
  std::uint64_t begin = 0, size = 0;
  void* waiting = nullptr;  ///< the replaced page; null: there was none
};
constinit std::array<StandIn, kStandInsMax> stand_ins{};
constinit std::size_t stand_in_count = 0;

void* place_of(std::uint64_t address) { return reinterpret_cast<void*>(address); }

void* map_empty(std::uint64_t begin, std::uint64_t size, int protection, int how) {
  return ::mmap(place_of(begin), size, protection,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0);
}

void put_back(const Opened& page) { (void)::mprotect(place_of(page.page), kPage, page.protection); }

StandIns::Placed place_empty(std::uint64_t begin, std::uint64_t size, void* waiting) {
  using enum StandIns::Placed;
  void* const got = map_empty(begin, size, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
  if (got == MAP_FAILED) return errno == EEXIST ? kTaken : kFailed;
  if (got != place_of(begin)) {  // the kernel does not know MAP_FIXED_NOREPLACE
    ::munmap(got, size);
    return kFailed;
  }
  if (stand_in_count != kStandInsMax) {
    stand_ins[stand_in_count++] = {.begin = begin, .size = size, .waiting = waiting};
  }
  return kPlaced;
}

}  // namespace

bool OpenedPages::open(std::uint64_t page, bool to_write) {
  const auto protection = protection_of(page);
  if (!protection) return false;
  const int wanted = *protection | PROT_READ | (to_write ? PROT_WRITE : 0);
  // Another thread has opened the page meanwhile.
  if (wanted == *protection) return true;
  const auto count = count_.load(std::memory_order_relaxed);
  auto& entry = opened[count % kOpenMax];
  if (count >= kOpenMax) put_back(entry);
  if (::mprotect(place_of(page), kPage, wanted) != 0) {
    entry = {.page = page, .protection = *protection};
    return false;
  }
  entry = {.page = page, .protection = *protection};
  count_.store(count + 1, std::memory_order_relaxed);
  return true;
}

void OpenedPages::close() {
  const auto count = count_.load(std::memory_order_relaxed);
  // In reverse order: a page that was opened twice gets its first protection back.
  for (std::size_t i = count; i != 0 && count - i < kOpenMax; --i)
    put_back(opened[(i - 1) % kOpenMax]);
  count_.store(0, std::memory_order_relaxed);
}

StandIns::Placed StandIns::place(std::uint64_t page) { return place_empty(page, kPage, nullptr); }

StandIns::Placed StandIns::replace(std::uint64_t page) {
  if (stand_in_count == kStandInsMax) return Placed::kFailed;
  for (const auto size : kPageSizes) {
    const auto begin = page & ~(size - 1);
    // Reserves space with the page's alignment.
    void* const room = map_empty(0, 2 * size, PROT_NONE, 0);
    if (room == MAP_FAILED) return Placed::kFailed;
    const auto first = (reinterpret_cast<std::uint64_t>(room) + size - 1) & ~(size - 1);
    void* const waiting =
        ::mremap(place_of(begin), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place_of(first));
    if (waiting == MAP_FAILED) {
      ::munmap(room, 2 * size);
      continue;
    }
    const auto room_begin = reinterpret_cast<std::uint64_t>(room);
    if (first != room_begin) ::munmap(room, first - room_begin);
    ::munmap(place_of(first + size), room_begin + size - first);
    return place_empty(begin, size, waiting);
  }
  return Placed::kFailed;
}

void StandIns::release() {
  // In reverse order: a stand-in may itself have been replaced.
  while (stand_in_count != 0) {
    const auto& one = stand_ins[--stand_in_count];
    if (one.waiting == nullptr) {
      ::munmap(place_of(one.begin), one.size);
    } else {
      (void)::mremap(one.waiting, one.size, one.size, MREMAP_MAYMOVE | MREMAP_FIXED,
                     place_of(one.begin));
    }
  }
}

}  // namespace softhca::door
