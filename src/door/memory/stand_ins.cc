#include "door/memory/stand_ins.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "door/memory/memory_map.h"
#include "door/memory/pages.h"
#include "os/file_size.h"
#include "os/kept_descriptors.h"
#include "os/unique_fd.h"

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
  std::uint64_t begin = 0, size = 0;  ///< size 0: it is released
  void* waiting = nullptr;            ///< the replaced page; null: there was none
  bool is_displaced = false;          ///< there is no stand-in: the page waits for its place
};
constinit std::array<StandIn, kStandInsMax> stand_ins{};
constinit std::size_t stand_in_count = 0;

/// The file of the stand-ins. It is sparse, and as long as the largest page.
struct OwnFile {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
};
constinit OwnFile own_file;

void* place_of(std::uint64_t address) { return reinterpret_cast<void*>(address); }

void* map_empty(std::uint64_t begin, std::uint64_t size, int protection, int how) {
  const int anonymous = own_file.fd < 0 ? MAP_ANONYMOUS : 0;
  return ::mmap(place_of(begin), size, protection, MAP_PRIVATE | MAP_NORESERVE | anonymous | how,
                own_file.fd, 0);
}

/// Whether map_empty() has mapped all of it.
bool is_own(std::uint64_t begin, std::uint64_t size) {
  if (own_file.fd < 0) return true;
  return maps_only(begin, begin + size, own_file.device, own_file.inode).value_or(true);
}

void unmap_own(std::uint64_t begin, std::uint64_t size) {
  if (is_own(begin, size)) ::munmap(place_of(begin), size);
}

/// Moves a replaced page over the stand-in.
bool move_back(const StandIn& one) {
  return ::mremap(one.waiting, one.size, one.size, MREMAP_MAYMOVE | MREMAP_FIXED,
                  place_of(one.begin)) != MAP_FAILED;
}

void put_back(const Opened& page) { (void)::mprotect(place_of(page.page), kPage, page.protection); }

StandIns::Placed map_in_hole(std::uint64_t begin, std::uint64_t size, int protection) {
  using enum StandIns::Placed;
  void* const got = map_empty(begin, size, protection, MAP_FIXED_NOREPLACE);
  if (got == MAP_FAILED) return errno == EEXIST ? kTaken : kFailed;
  if (got != place_of(begin)) {  // the kernel does not know MAP_FIXED_NOREPLACE
    ::munmap(got, size);
    return kFailed;
  }
  return kPlaced;
}

void note(const StandIn& one) {
  if (stand_in_count != kStandInsMax) stand_ins[stand_in_count++] = one;
}

/// False: the page still waits for its place.
bool return_page(StandIn& one) {
  if (one.is_displaced &&
      map_in_hole(one.begin, one.size, PROT_NONE) != StandIns::Placed::kPlaced) {
    return false;
  }
  one.is_displaced = !move_back(one);
  if (one.is_displaced) unmap_own(one.begin, one.size);
  return !one.is_displaced;
}

/// False: to be released later.
bool release_one(StandIn& one) {
  if (one.is_displaced) return return_page(one);
  if (one.waiting == nullptr) {
    unmap_own(one.begin, one.size);
    return true;
  }
  if (is_own(one.begin, one.size)) return return_page(one);
  // The program has unmapped or replaced the stand-in, and so its own page.
  ::munmap(one.waiting, one.size);
  return true;
}

/// Replaces a page without leaving a hole, in which a mapping of another thread could land. Sets
/// errno to EINVAL where the kernel cannot: huge pages, and Linux before 5.13.
StandIns::Placed replace_at_once(std::uint64_t page) {
  using enum StandIns::Placed;
  StandIn one{.begin = page, .size = kPage};
  one.waiting = ::mremap(place_of(page), kPage, kPage, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  if (one.waiting == MAP_FAILED) return errno == EFAULT ? kTaken : kFailed;
  const bool placed = map_empty(page, kPage, PROT_READ | PROT_WRITE, MAP_FIXED) != MAP_FAILED;
  if (placed || !move_back(one)) {
    one.is_displaced = !placed;
    note(one);
  }
  errno = ENOMEM;
  return placed ? kPlaced : kFailed;
}

/// Replaces a page of this size by moving it away first. Sets errno to EINVAL if the mapping has
/// larger pages.
StandIns::Placed replace_by_move(std::uint64_t begin, std::uint64_t size) {
  using enum StandIns::Placed;
  // Reserves space with the page's alignment.
  void* const room = map_empty(0, 2 * size, PROT_NONE, 0);
  if (room == MAP_FAILED) {
    errno = ENOMEM;
    return kFailed;
  }
  const auto room_begin = reinterpret_cast<std::uint64_t>(room);
  auto first = (room_begin + size - 1) & ~(size - 1);
  // With the alignment of a huge page, the kernel would move a whole one.
  if (size == kPage && first % kPageSizes[1] == 0) first += kPage;
  if (first != room_begin) ::munmap(room, first - room_begin);
  if (first != room_begin + size) ::munmap(place_of(first + size), room_begin + size - first);
  StandIn one{.begin = begin, .size = size};
  one.waiting =
      ::mremap(place_of(begin), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place_of(first));
  if (one.waiting == MAP_FAILED) {
    const int wrong = errno;
    unmap_own(first, size);
    errno = wrong;
    return wrong == EFAULT ? kTaken : kFailed;
  }
  const auto placed = map_in_hole(begin, size, PROT_READ | PROT_WRITE);
  one.is_displaced = placed != kPlaced;
  if (!one.is_displaced || !return_page(one)) note(one);
  errno = ENOMEM;
  return placed;
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

void StandIns::prepare() {
  struct stat status{};
  // A forked child has closed its parent's descriptors. Others may have their numbers.
  if (own_file.fd >= 0 && ::fstat(own_file.fd, &status) == 0 && status.st_dev == own_file.device &&
      status.st_ino == own_file.inode) {
    return;
  }
  own_file = {};
  const os::UniqueFd file(::memfd_create("softhca-stand-ins", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || !os::set_file_size(file.get(), kPageSizes.back(), "stand-ins")) return;
  (void)::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  if (::fstat(file.get(), &status) != 0) return;
  own_file = {.fd = os::keep_copy(file.get()), .device = status.st_dev, .inode = status.st_ino};
}

StandIns::Placed StandIns::place(std::uint64_t page) {
  const auto placed = map_in_hole(page, kPage, PROT_READ | PROT_WRITE);
  if (placed == Placed::kPlaced) note({.begin = page, .size = kPage});
  return placed;
}

StandIns::Placed StandIns::replace(std::uint64_t page) {
  if (stand_in_count == kStandInsMax) return Placed::kFailed;
  auto placed = replace_at_once(page);
  for (const auto size : kPageSizes) {
    if (placed != Placed::kFailed || errno != EINVAL) break;
    placed = replace_by_move(page & ~(size - 1), size);
  }
  return placed;
}

void StandIns::release() {
  const auto all = std::span(stand_ins).first(stand_in_count);
  // In reverse order: a stand-in may itself have been replaced.
  for (auto i = all.size(); i != 0; --i) {
    if (release_one(all[i - 1])) all[i - 1].size = 0;
  }
  const auto released = std::ranges::remove(all, std::uint64_t{0}, &StandIn::size);
  stand_in_count -= released.size();
}

}  // namespace softhca::door
