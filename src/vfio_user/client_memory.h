// Applies the client's DMA_MAP and DMA_UNMAP to the function's DmaSpace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "os/janitor.h"
#include "os/memory_guard.h"
#include "os/unique_fd.h"
#include "pcie/dma_space.h"
#include "vfio_user/capabilities.h"
#include "vfio_user/message_result.h"
#include "vfio_user/protocol.h"

namespace softhca::vfio_user {

class ClientMemory {
 public:
  struct Host {
    os::Janitor* janitor = nullptr;         ///< unmaps memory; null: this object does
    os::EventLoop::Notice* lost = nullptr;  ///< raised when lost() becomes true
    std::size_t max_maps = kMaxDmaMaps;
  };

  /// `remote` reaches memory that was mapped without a file descriptor.
  ClientMemory(pcie::DmaSpace& dma, pcie::RemoteMemory& remote, const Host& host)
      : dma_(dma), remote_(remote), host_(host) {
    owner_->notice = host.lost;
  }
  ~ClientMemory() { unmap_all(); }
  ClientMemory(const ClientMemory&) = delete;
  ClientMemory& operator=(const ClientMemory&) = delete;

  /// DMA_MAP, with at most one descriptor.
  MessageResult map(const protocol::DmaMap& request, std::span<os::UniqueFd> fds);
  /// DMA_UNMAP. Afterwards nothing in this process refers to the memory, though it may stay mapped
  /// for a while (see Janitor).
  MessageResult unmap(const protocol::DmaUnmap& request);
  void unmap_all() { release(dma_.unmap_all()); }
  /// Cost of requests since the last call, besides their messages (see util::WorkBudget).
  std::int64_t take_work() { return std::exchange(work_, 0) + dma_.take_loss_work(); }
  /// True if a part of the shared memory has disappeared; it reads as zeros.
  bool lost() const { return owner_->lost.load(); }

 private:
  void release(const std::vector<pcie::DmaSpace::Mapping>& maps) noexcept;
  std::int64_t moved_by(pcie::Iova address) const;
  MessageResult map_file(const protocol::DmaMap& request, int fd, pcie::DmaAccess access);

  pcie::DmaSpace& dma_;
  pcie::RemoteMemory& remote_;
  Host host_;
  std::shared_ptr<os::MemoryOwner> owner_ = std::make_shared<os::MemoryOwner>();
  std::int64_t work_ = 0;
};

}  // namespace softhca::vfio_user
