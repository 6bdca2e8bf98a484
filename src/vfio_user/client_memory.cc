#include "vfio_user/client_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "vfio_user/capabilities.h"

namespace softhca::vfio_user {
namespace {

pcie::DmaAccess access_of(std::uint32_t flags) {
  const bool read = flags & protocol::kDmaMapReadable;
  const bool write = flags & protocol::kDmaMapWriteable;
  if (read && write) return pcie::DmaAccess::kReadWrite;
  return read ? pcie::DmaAccess::kRead : pcie::DmaAccess::kWrite;
}

/// True if the file is memory (memfd, tmpfs, hugetlbfs): pages of other files depend on their file
/// system, which may never provide them. Only files in memory have seals. Unlike fstat(), this
/// check calls no file system that the client may run.
bool is_memory(int fd) { return ::fcntl(fd, F_GET_SEALS) >= 0; }

/// Pages beyond the end of a file do not exist (see MemoryGuard), so the file must contain the
/// whole range.
MessageResult check_file(int fd, std::uint64_t offset, std::uint64_t size) {
  if (!is_memory(fd)) return refuse(EINVAL, "the descriptor is not of a file in memory");
  struct stat status;
  if (::fstat(fd, &status) != 0) return refuse(errno, "cannot examine the descriptor");
  const auto file_size = static_cast<std::uint64_t>(status.st_size);
  if (offset > file_size || size > file_size - offset) {
    return refuse(EINVAL, "passes the end of the file");
  }
  return kDone;
}

/// Page size of a file in memory. 0 if it cannot be determined.
std::size_t page_size_of(int fd) {
  struct statfs system;
  if (::fstatfs(fd, &system) != 0) return 0;
  return system.f_type == HUGETLBFS_MAGIC ? static_cast<std::size_t>(system.f_bsize) : kDmaPageSize;
}

/// Maps a range of a file, with the rest of its first and last page: the kernel neither replaces
/// nor unmaps a part of a huge page. Owns the mapping until keep().
class GuardedMap {
 public:
  GuardedMap(int fd, std::uint64_t offset, std::size_t size, int protection, std::size_t page) {
    const auto before = offset % page;
    const auto whole = (before + size + page - 1) / page * page;
    auto* start = ::mmap(nullptr, whole, protection, MAP_SHARED | MAP_NORESERVE, fd,
                         static_cast<off_t>(offset - before));
    if (start == MAP_FAILED) return;
    file_ = {.start = static_cast<std::byte*>(start), .size = whole, .page = page};
    used_ = file_.start + before;
  }
  ~GuardedMap() {
    if (!*this) return;
    os::MemoryGuard::instance().remove(used_);
    ::munmap(file_.start, file_.size);
  }
  GuardedMap(const GuardedMap&) = delete;
  GuardedMap& operator=(const GuardedMap&) = delete;

  explicit operator bool() const { return used_ != nullptr; }
  std::byte* used() const { return used_; }
  bool guard(os::MemoryOwner& owner) {
    return os::MemoryGuard::instance().add(file_, used_, owner);
  }
  void keep() { used_ = nullptr; }

 private:
  os::MappedFile file_;
  std::byte* used_ = nullptr;  ///< start of the range
};

/// Cost besides the message: system calls.
constexpr std::int64_t kMapWork = 3'000;
constexpr std::int64_t kUnmapWork = 2'000;
/// Cost, in tenths of a unit, of each entry that moves in the table of mappings.
constexpr std::size_t kMovedWork = 40;

}  // namespace

MessageResult ClientMemory::map(const protocol::DmaMap& request, std::span<os::UniqueFd> fds) {
  constexpr auto kAccess = protocol::kDmaMapReadable | protocol::kDmaMapWriteable;
  if (request.argsz < sizeof request) return refuse(EINVAL, "argsz below the structure's size");
  if (request.flags & ~kAccess) return refuse(EINVAL, "unknown flags");
  if ((request.flags & kAccess) == 0) return refuse(EINVAL, "neither readable nor writeable");
  if (fds.size() > 1) return refuse(EINVAL, "more than one descriptor");
  if (request.size == 0) return refuse(EINVAL, "size 0");
  if ((request.address | request.size) % kDmaPageSize != 0) {
    return refuse(EINVAL, "address or size not a multiple of the page size");
  }
  if (request.address + (request.size - 1) < request.address) {
    return refuse(EINVAL, "passes the end of the address space");
  }
  work_ += kMapWork + moved_by(request.address);
  if (dma_.overlaps(request.address, request.size)) {
    return refuse(EEXIST, "overlaps an existing map");
  }
  if (dma_.mappings().size() >= host_.max_maps) return refuse(ENOSPC, "max_dma_maps reached");
  const auto access = access_of(request.flags);
  if (!fds.empty()) {
    const auto result = map_file(request, fds[0].get(), access);
    if (result) fds[0].reset();  // the mapping keeps the file open: this is not the last close
    return result;
  }
  if (request.offset != 0) return refuse(EINVAL, "an offset without a descriptor");
  if (!dma_.map_remote(request.address, request.size, remote_, access)) {
    return refuse(EINVAL, "refused by the DMA space");
  }
  return kDone;
}

MessageResult ClientMemory::map_file(const protocol::DmaMap& request, int fd,
                                     pcie::DmaAccess access) {
  if (request.offset % kDmaPageSize != 0) {
    return refuse(EINVAL, "file offset not a multiple of the page size");
  }
  if (request.offset > std::numeric_limits<std::int64_t>::max()) {
    return refuse(EINVAL, "passes the end of the file");
  }
  if (auto v = check_file(fd, request.offset, request.size); !v) return v;
  const int protection = (request.flags & protocol::kDmaMapReadable ? PROT_READ : 0) |
                         (request.flags & protocol::kDmaMapWriteable ? PROT_WRITE : 0);
  const auto page = page_size_of(fd);
  if (page == 0) return refuse(errno, "cannot examine the descriptor's file system");
  GuardedMap memory(fd, request.offset, request.size, protection, page);
  if (!memory) return refuse(errno, "mmap failed");
  if (!memory.guard(*owner_)) return refuse(ENOSPC, "the process guards no more maps");
  if (!dma_.map(request.address, request.size, memory.used(), access)) {
    return refuse(EINVAL, "refused by the DMA space");
  }
  memory.keep();
  return kDone;
}

/// Cost of moving the entries behind a new or a removed one.
std::int64_t ClientMemory::moved_by(pcie::Iova address) const {
  return static_cast<std::int64_t>(dma_.mappings_from(address).size() * kMovedWork / 10);
}

MessageResult ClientMemory::unmap(const protocol::DmaUnmap& request) {
  if (request.argsz < sizeof request) return refuse(EINVAL, "argsz below the structure's size");
  if (request.flags == protocol::kDmaUnmapAll) {
    if (request.address != 0 || request.size != 0) {
      return refuse(EINVAL, "unmap of everything with an address or size");
    }
    unmap_all();
    return kDone;
  }
  if (request.flags != 0)
    return refuse(ENOTSUP, "unknown flags (dirty page tracking is not offered)");
  if (request.size == 0) return refuse(EINVAL, "size 0");
  const auto last = request.address + (request.size - 1);
  if (last < request.address) return refuse(EINVAL, "passes the end of the address space");
  // "The address and size of the DMA region being unmapped must match exactly a previous mapping."
  // QEMU with a virtual IOMMU also unmaps a wider range that contains several maps, as the ioctl
  // allows. Otherwise the guest's device would keep access to memory that the guest has revoked.
  work_ += kUnmapWork + moved_by(request.address);
  const auto from = dma_.mappings_from(request.address);
  const auto end = std::ranges::upper_bound(from, last, {}, &pcie::DmaSpace::Mapping::iova);
  const auto covered = from.first(static_cast<std::size_t>(end - from.begin()));
  if (covered.empty()) return refuse(ENOENT, "no such map");
  const auto& highest = covered.back();
  if (covered.front().iova < request.address || highest.iova + (highest.size - 1) > last) {
    return refuse(ENOENT, "a part of an existing map");
  }
  release(dma_.take(covered));
  return kDone;
}

void ClientMemory::release(const std::vector<pcie::DmaSpace::Mapping>& maps) noexcept {
  os::Janitor::Maps left;
  bool handed_over = host_.janitor != nullptr;
  try {
    if (handed_over) left.reserve(maps.size());
  } catch (const std::bad_alloc&) {
    handed_over = false;
  }
  for (const auto& map : maps) {
    if (map.host == nullptr) continue;
    const os::Janitor::Map memory(map.host, map.size);
    if (handed_over) {
      left.push_back(memory);
    } else {
      os::Janitor::unmap_now({&memory, 1});
    }
  }
  if (handed_over) host_.janitor->unmap(std::move(left), owner_);
}

}  // namespace softhca::vfio_user
