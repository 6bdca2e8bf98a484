#include "vfio_user/client_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <limits>
#include <vector>

#include "vfio_user/capabilities.h"

namespace softhca::vfio_user {
namespace {

pcie::DmaAccess access_of(std::uint32_t flags) {
  const bool read = flags & protocol::kDmaMapReadable;
  const bool write = flags & protocol::kDmaMapWriteable;
  if (read && write) return pcie::DmaAccess::kReadWrite;
  return read ? pcie::DmaAccess::kRead : pcie::DmaAccess::kWrite;
}

/// The file must be memory (memfd, tmpfs, hugetlbfs): the pages of others come from wherever their
/// file system gets them, if it ever does. Only files in memory have seals, and the question is
/// answered without asking a file system that the client may run (as fstat() would).
bool is_memory(int fd) { return ::fcntl(fd, F_GET_SEALS) >= 0; }

/// Pages beyond the end of a file are not there (see MemoryGuard), so it must hold the whole range.
Verdict check_file(int fd, std::uint64_t offset, std::uint64_t size) {
  if (!is_memory(fd)) return refuse(EINVAL, "the descriptor is not of a file in memory");
  struct stat status;
  if (::fstat(fd, &status) != 0) return refuse(errno, "cannot examine the descriptor");
  const auto file_size = static_cast<std::uint64_t>(status.st_size);
  if (offset > file_size || size > file_size - offset) {
    return refuse(EINVAL, "passes the end of the file");
  }
  return kDone;
}

}  // namespace

Verdict ClientMemory::map(const protocol::DmaMap& request, std::span<UniqueFd> fds) {
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
  if (dma_.overlaps(request.address, request.size)) {
    return refuse(EEXIST, "overlaps an existing map");
  }
  if (dma_.mappings().size() >= host_.max_maps) return refuse(ENOSPC, "max_dma_maps reached");
  const auto access = access_of(request.flags);
  if (!fds.empty()) {
    const auto verdict = map_file(request, fds[0].get(), access);
    if (verdict) fds[0].reset();  // the mapping keeps the file: this is not its last close
    return verdict;
  }
  if (request.offset != 0) return refuse(EINVAL, "an offset without a descriptor");
  if (!dma_.map_remote(request.address, request.size, remote_, access)) {
    return refuse(EINVAL, "refused by the DMA space");
  }
  return kDone;
}

Verdict ClientMemory::map_file(const protocol::DmaMap& request, int fd, pcie::DmaAccess access) {
  if (request.offset % kDmaPageSize != 0) {
    return refuse(EINVAL, "file offset not a multiple of the page size");
  }
  if (request.offset > std::numeric_limits<std::int64_t>::max()) {
    return refuse(EINVAL, "passes the end of the file");
  }
  if (auto v = check_file(fd, request.offset, request.size); !v) return v;
  const int protection = (request.flags & protocol::kDmaMapReadable ? PROT_READ : 0) |
                         (request.flags & protocol::kDmaMapWriteable ? PROT_WRITE : 0);
  auto* memory = ::mmap(nullptr, request.size, protection, MAP_SHARED | MAP_NORESERVE, fd,
                        static_cast<off_t>(request.offset));
  if (memory == MAP_FAILED) return refuse(errno, "mmap failed");
  auto* start = static_cast<std::byte*>(memory);
  if (!MemoryGuard::instance().add(start, request.size, owner_)) {
    ::munmap(memory, request.size);
    return refuse(ENOSPC, "the process guards no more maps");
  }
  if (!dma_.map(request.address, request.size, start, access)) {
    release({.start = start, .size = request.size});
    return refuse(EINVAL, "refused by the DMA space");
  }
  mapped_.emplace(request.address, HostRange{.start = start, .size = request.size});
  return kDone;
}

Verdict ClientMemory::unmap(const protocol::DmaUnmap& request) {
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
  // QEMU behind a virtual IOMMU also unmaps a wider range with several maps in it, as the ioctl
  // allows; leaving those would leave the guest's device access to memory it took away.
  std::vector<pcie::DmaSpace::Mapping> covered;
  for (const auto& mapping : dma_.mappings()) {
    const auto mapping_last = mapping.iova + (mapping.size - 1);
    if (mapping_last < request.address) continue;
    if (mapping.iova > last) break;
    if (mapping.iova < request.address || mapping_last > last) {
      return refuse(ENOENT, "a part of an existing map");
    }
    covered.push_back(mapping);
  }
  if (covered.empty()) return refuse(ENOENT, "no such map");
  for (const auto& mapping : covered) remove(mapping);
  return kDone;
}

void ClientMemory::remove(const pcie::DmaSpace::Mapping& mapping) {
  [[maybe_unused]] const auto unmapped = dma_.unmap(mapping.iova, mapping.size);
  if (const auto found = mapped_.find(mapping.iova); found != mapped_.end()) {
    release(found->second);
    mapped_.erase(found);
  }
}

void ClientMemory::unmap_all() {
  dma_.unmap_all();
  for (const auto& [iova, range] : mapped_) release(range);
  mapped_.clear();
}

void ClientMemory::release(const HostRange& range) {
  MemoryGuard::instance().remove(range.start);
  if (host_.janitor != nullptr) {
    host_.janitor->unmap(range.start, range.size);
  } else {
    ::munmap(range.start, range.size);
  }
}

}  // namespace softhca::vfio_user
