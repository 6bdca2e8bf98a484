// The memory of a queue. JingZhao names it by an LKey alone; byte 0 of the queue is the first byte
// of the region (docs/jingzhao.md). An EQ without translation is named by a bus address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "hca/queue_memory.h"
#include "rdma/memory_key.h"
#include "util/copy_short.h"

namespace softhca::jingzhao {

class QueueMemory {
 public:
  QueueMemory() = default;
  /// `pd`: nothing if the document defines no PD for such a queue; then any PD is accepted.
  QueueMemory(rdma::KeyTable& keys, rdma::MKey lkey, std::optional<rdma::Pd> pd, std::uint64_t size)
      : keys_(&keys), lkey_(lkey), pd_(pd), size_(size) {}
  /// `size` bytes from a bus address on.
  QueueMemory(rdma::KeyTable& keys, pcie::Iova address, std::uint64_t size)
      : keys_(&keys), bus_(address), size_(size) {}

  std::uint64_t size() const { return size_; }  ///< bytes

  /// Host address of [offset, offset + length) if it is one piece of local memory that may be read
  /// and written. Otherwise null: use read() and write(). @pre offset + length <= size()
  std::byte* at(std::uint64_t offset, std::uint64_t length) {
    if (keys_generation_ != keys_->generation() || dma_generation_ != keys_->dma().generation()) {
      look();
    }
    return offset + length <= window_ ? host_ + offset : nullptr;
  }
  /// Fast path of at(): uses the cached translation only. Null also if that is no longer valid.
  std::byte* at_fast(std::uint64_t offset, std::uint64_t length) const {
    return keys_generation_ == keys_->generation() &&
                   dma_generation_ == keys_->dma().generation() && offset + length <= window_
               ? host_ + offset
               : nullptr;
  }
  /// False if the key or its memory does not allow the access. @pre as for at()
  bool read(std::uint64_t offset, std::span<std::byte> out) {
    if (const auto* from = at(offset, out.size())) [[likely]] {
      util::copy_header(out.data(), from, out.size());
      return true;
    }
    return read_slow(offset, out);
  }
  bool write(std::uint64_t offset, std::span<const std::byte> in);

 private:
  bool read_slow(std::uint64_t offset, std::span<std::byte> out);
  /// Refreshes the cached translation.
  void look();
  /// The queue's memory through its key, as it is now. Nothing if the key does not exist.
  std::optional<hca::QueueMemory> behind_key();

  rdma::KeyTable* keys_ = nullptr;
  rdma::MKey lkey_;
  std::optional<rdma::Pd> pd_;
  std::optional<pcie::Iova> bus_;
  std::uint64_t size_ = 0;
  // Result of the last look().
  std::uint64_t keys_generation_ = 0;
  std::uint64_t dma_generation_ = 0;
  std::uint64_t window_ = 0;  ///< bytes that host_ maps
  std::byte* host_ = nullptr;
};

}  // namespace softhca::jingzhao
