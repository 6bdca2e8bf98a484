// The ICM: host memory that software provides for the device's contexts (JingZhao 1.1, 3.2.2).
//
// The ICM is an address space of the device. MAP_ICM maps host pages there, chunk by chunk, for one
// of two groups of tables; UNMAP_ICM unmaps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "pcie/dma_space.h"
#include "spec/jingzhao/command.h"

namespace softhca::jingzhao {

using IcmGroup = spec::jingzhao::icm_group;

/// The pages of one group.
class Icm {
 public:
  static constexpr unsigned kLogPage = 12;
  static constexpr std::uint64_t kPage = std::uint64_t{1} << kLogPage;
  /// Limit on the chunks of a group. The callers of map() and unmap() enforce it.
  static constexpr std::size_t kChunksMax = 4096;
  /// Work (util::WorkBudget) of freeing a chunk.
  static constexpr std::int64_t kChunkWork = 25;

  /// Addresses from `begin` to before `end`.
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  /// The same addresses in ascending order, without overlap.
  static std::vector<Range> merge(std::vector<Range> ranges);

  explicit Icm(pcie::DmaSpace& dma) : dma_(dma) {}

  /// Replaces any earlier mapping. @pre `virt` is page-aligned, the pages do not wrap
  void map(std::uint64_t virt, pcie::Iova bus, std::uint64_t pages);
  /// Unmaps the pages, whether mapped or not.
  void unmap(std::uint64_t virt, std::uint64_t pages);
  void clear() { chunks_.clear(); }

  /// Number of chunks after all of these ranges are mapped, in order.
  std::size_t chunks_after(std::span<const Range> ranges) const;
  /// True if unmap() would split a chunk and so add one.
  bool splits(std::uint64_t virt, std::uint64_t pages) const;
  /// True if any of these pages is mapped.
  bool overlaps(std::uint64_t virt, std::uint64_t pages) const;
  /// True if all of [virt, virt + size) is mapped.
  bool mapped(std::uint64_t virt, std::uint64_t size) const;
  /// False if a part is not mapped, or the host memory is gone.
  bool read(std::uint64_t virt, std::span<std::byte> out) const;
  bool write(std::uint64_t virt, std::span<const std::byte> in);

  std::uint64_t pages() const;
  std::size_t chunks() const { return chunks_.size(); }

 private:
  struct Chunk {
    std::uint64_t size;  ///< bytes
    pcie::Iova bus;
  };
  using Chunks = std::map<std::uint64_t, Chunk>;  ///< by virtual address, without overlap

  Chunks::const_iterator find(std::uint64_t virt) const;
  template <class Piece>
  bool for_each_piece(std::uint64_t virt, std::uint64_t size, Piece&& piece) const;
  void cut(std::uint64_t virt, std::uint64_t end);

  pcie::DmaSpace& dma_;
  Chunks chunks_;
};

}  // namespace softhca::jingzhao
