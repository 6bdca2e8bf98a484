// An HCA whose queue pairs are connected to each other: a guest's setup, in as few lines as an
// attack needs.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/connectx/completion_queue.h"
#include "driver/connectx/hca.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "driver/dma_memory.h"
#include "driver/host.h"

namespace softhca::neighbours {

template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
inline void must(const util::Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

/// Two queue pairs of one HCA, each the other's peer.
struct LoopPair {
  std::unique_ptr<driver::connectx::QueuePair> from;
  std::unique_ptr<driver::connectx::QueuePair> to;
};

class LoopHca {
 public:
  /// Connects through a vfio-user socket. `number` selects its addresses. `memory` is the size of
  /// the shared payload memory, in bytes.
  LoopHca(const std::string& socket, unsigned number, std::size_t memory);
  /// Uses any host.
  LoopHca(std::unique_ptr<driver::Host> host, unsigned number, std::size_t memory,
          const driver::connectx::Hca::Options& options = {});
  ~LoopHca();
  LoopHca(const LoopHca&) = delete;
  LoopHca& operator=(const LoopHca&) = delete;

  driver::Host& host() { return *host_; }
  driver::connectx::Hca& hca() { return *hca_; }
  driver::connectx::CompletionQueue& cq() { return *cq_; }
  const driver::Gid& gid() const { return gid_; }
  std::uint32_t pd() const { return pd_->pd(); }
  driver::connectx::ProtectionDomain& protection_domain() { return *pd_; }
  std::span<std::byte> memory() { return memory_.bytes(); }

  /// A key for bus addresses [iova(0), iova(size)). Peers may write and read.
  std::uint32_t key() const { return key_->key(); }
  std::uint64_t iova(std::size_t offset = 0) const { return memory_.iova(offset); }

  /// One piece of an indirect key.
  struct Piece {
    std::uint32_t length;
    std::uint32_t key;
    std::uint64_t address;
  };
  /// An indirect key. Its address space is the concatenation of the pieces (PRM 6.4.2).
  std::uint32_t make_indirect_key(std::uint64_t start, const std::vector<Piece>& pieces);

  /// A queue pair that is not yet connected.
  std::unique_ptr<driver::connectx::QueuePair> make_qp() {
    return must(driver::connectx::QueuePair::create(*pd_, {.send_cq = *cq_, .receive_cq = *cq_}));
  }
  /// The address by which a peer reaches a queue pair of this HCA.
  driver::connectx::RemoteQueuePair address_of(const driver::connectx::QueuePair& qp) const {
    return {.qpn = qp.qpn(), .psn = 0, .gid = gid_, .mac = hca_->mac()};
  }

  LoopPair make_pair(const driver::connectx::QueuePair::Options& options,
                     const driver::connectx::Connection& connection = {.path_mtu = 4096});
  LoopPair make_pair() { return make_pair({.send_cq = *cq_, .receive_cq = *cq_}); }

  /// A piece of memory() for a work request.
  driver::Sge piece(std::size_t offset, std::size_t size) const {
    return {iova(offset), static_cast<std::uint32_t>(size), key()};
  }

 private:
  std::unique_ptr<driver::Host> host_;
  std::unique_ptr<driver::connectx::Hca> hca_;
  driver::Gid gid_;
  driver::DmaBuffer memory_;
  std::unique_ptr<driver::connectx::ProtectionDomain> pd_;
  std::unique_ptr<driver::connectx::CompletionQueue> cq_;
  std::unique_ptr<driver::connectx::MemoryKey> key_;
  std::vector<std::uint32_t> keys_;  ///< indirect
};

}  // namespace softhca::neighbours
