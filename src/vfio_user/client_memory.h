// The client's memory, as DMA_MAP and DMA_UNMAP describe it, in the function's DmaSpace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "pcie/dma_space.h"
#include "vfio_user/janitor.h"
#include "vfio_user/protocol.h"
#include "vfio_user/unique_fd.h"
#include "vfio_user/verdict.h"

namespace softhca::vfio_user {

class ClientMemory {
 public:
  /// `remote` reaches memory that comes without a file descriptor. `janitor` unmaps what was
  /// mapped; null: it is done at once.
  ClientMemory(pcie::DmaSpace& dma, pcie::RemoteMemory& remote, Janitor* janitor)
      : dma_(dma), remote_(remote), janitor_(janitor) {}
  ~ClientMemory() { unmap_all(); }
  ClientMemory(const ClientMemory&) = delete;
  ClientMemory& operator=(const ClientMemory&) = delete;

  /// DMA_MAP, with at most one descriptor.
  Verdict map(const protocol::DmaMap& request, std::span<UniqueFd> fds);
  /// DMA_UNMAP. Afterwards nothing of this process refers to the memory.
  Verdict unmap(const protocol::DmaUnmap& request);
  void unmap_all();

 private:
  struct HostRange {
    std::byte* start;
    std::size_t size;
  };

  void remove(const pcie::DmaSpace::Mapping& mapping);
  void release(const HostRange& range);
  Verdict map_file(const protocol::DmaMap& request, int fd, pcie::DmaAccess access);

  pcie::DmaSpace& dma_;
  pcie::RemoteMemory& remote_;
  Janitor* janitor_;
  std::map<pcie::Iova, HostRange> mapped_;  ///< what we must munmap
};

}  // namespace softhca::vfio_user
