// The memory of a queue. JingZhao names it by an LKey alone: byte 0 of the queue is the first byte
// of the region (docs/jingzhao.md); an EQ without translation, by a bus address.
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
  /// `pd`: nothing if the document has no PD for such a queue, and any will do.
  QueueMemory(rdma::KeyTable& keys, rdma::MKey lkey, std::optional<rdma::Pd> pd, std::uint64_t size)
      : keys_(&keys), lkey_(lkey), pd_(pd), size_(size) {}
  /// `size` bytes from a bus address on.
  QueueMemory(rdma::KeyTable& keys, pcie::Iova address, std::uint64_t size)
      : keys_(&keys), bus_(address), size_(size) {}

  std::uint64_t size() const { return size_; }  ///< bytes

  /// Host address of [offset, offset + length) if it is one piece of local memory that may be read
  /// and written; else null: then read() and write() tell. @pre offset + length <= size()
  std::byte* at(std::uint64_t offset, std::uint64_t length) {
    if (keys_generation_ != keys_->generation() || dma_generation_ != keys_->dma().generation()) {
      look();
    }
    return offset + length <= window_ ? host_ + offset : nullptr;
  }
  /// The same without looking for it anew: null also if something has changed.
  std::byte* at_hand(std::uint64_t offset, std::uint64_t length) const {
    return keys_generation_ == keys_->generation() &&
                   dma_generation_ == keys_->dma().generation() && offset + length <= window_
               ? host_ + offset
               : nullptr;
  }
  /// False if the key or its memory does not allow it. @pre as at()
  bool read(std::uint64_t offset, std::span<std::byte> out) {
    if (const auto* from = at(offset, out.size())) [[likely]] {
      util::copy_header(out.data(), from, out.size());
      return true;
    }
    return read_afar(offset, out);
  }
  bool write(std::uint64_t offset, std::span<const std::byte> in);

 private:
  bool read_afar(std::uint64_t offset, std::span<std::byte> out);
  /// Finds the region anew.
  void look();
  /// Of an access by the key, as it is now. Nothing: it is not there.
  std::optional<hca::QueueMemory> behind_key();

  rdma::KeyTable* keys_ = nullptr;
  rdma::MKey lkey_;
  std::optional<rdma::Pd> pd_;
  std::optional<pcie::Iova> bus_;
  std::uint64_t size_ = 0;
  // What look() has found.
  std::uint64_t keys_generation_ = 0;
  std::uint64_t dma_generation_ = 0;
  std::uint64_t window_ = 0;  ///< bytes from host_ on
  std::byte* host_ = nullptr;
};

}  // namespace softhca::jingzhao
