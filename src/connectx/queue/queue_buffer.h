// Rings in host memory, and the doorbell records beside them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pcie/dma_space.h"

namespace softhca::connectx {

/// The memory of a work queue, CQ or EQ: a list of pages that begins `page_offset` bytes into its
/// first page. Keeps host addresses as long as no DMA mapping goes away.
class QueueBuffer {
 public:
  QueueBuffer() = default;
  /// `pas`: big-endian bus addresses, one for each page of 2^log_page_size bytes. Nothing if there
  /// are fewer pages than `size` bytes at `page_offset` need.
  static std::optional<QueueBuffer> from_pas(pcie::DmaSpace& dma, std::span<const std::byte> pas,
                                             unsigned log_page_size, std::uint64_t page_offset,
                                             std::uint64_t size);

  std::uint64_t size() const { return size_; }  ///< bytes

  /// Host address of [offset, offset + length) if it lies in one piece of local memory, else null:
  /// then use read() and write(). @pre offset + length <= size()
  std::byte* at(std::uint64_t offset, std::uint64_t length);
  /// False if the memory is gone. @pre offset + out.size() <= size()
  bool read(std::uint64_t offset, std::span<std::byte> out);
  bool write(std::uint64_t offset, std::span<const std::byte> in);
  /// The page list as it was given, for QUERY commands.
  std::span<const pcie::Iova> pages() const { return pages_; }

 private:
  void resolve();
  template <class Piece>
  bool for_each_page(std::uint64_t offset, std::uint64_t length, Piece&& piece);

  pcie::DmaSpace* dma_ = nullptr;
  std::vector<pcie::Iova> pages_;
  std::vector<std::byte*> host_;     ///< of each page, null where remote or unmapped
  std::byte* contiguous_ = nullptr;  ///< of offset 0, if all pages follow each other in host memory
  std::uint64_t generation_ = 0;
  std::uint64_t page_offset_ = 0;
  std::uint64_t size_ = 0;
  unsigned log_page_size_ = 12;
};

/// Two big-endian dwords that software updates without telling anyone (PRM 7.4.4).
class DoorbellRecord {
 public:
  DoorbellRecord() = default;
  DoorbellRecord(pcie::DmaSpace& dma, pcie::Iova address) : dma_(&dma), address_(address) {}

  pcie::Iova address() const { return address_; }
  /// Dword 0 or 1, with everything that software wrote before it visible after it. Nothing if the
  /// memory is gone.
  std::optional<std::uint32_t> read(unsigned dword);

 private:
  pcie::DmaSpace* dma_ = nullptr;
  pcie::Iova address_ = 0;
  std::byte* host_ = nullptr;
  std::uint64_t generation_ = 0;
};

/// Copies `entry` (a CQE or EQE) to `to` so that its last four bytes, which hold the owner bit,
/// become visible after all others.
void publish_entry(std::byte* to, std::span<const std::byte> entry);

}  // namespace softhca::connectx
