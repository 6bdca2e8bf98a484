// Host memory for queue tests: 64 KiB at bus address 0x10000.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "hca/queue_memory.h"
#include "pcie/dma_space.h"
#include "util/endian.h"

namespace softhca::hca {

/// A peer's memory behind read and write calls, as offered by a client without shared memory.
class PeerMemory : public pcie::RemoteMemory {
 public:
  explicit PeerMemory(std::span<std::byte> bytes, pcie::Iova at) : bytes_(bytes), at_(at) {}
  bool dma_read(pcie::Iova from, std::span<std::byte> out) override {
    std::ranges::copy(bytes_.subspan(from - at_, out.size()), out.begin());
    return true;
  }
  bool dma_write(pcie::Iova to, std::span<const std::byte> in) override {
    std::ranges::copy(in, bytes_.subspan(to - at_, in.size()).begin());
    writes.push_back(in.size());
    return true;
  }
  std::vector<std::size_t> writes;  ///< size of each, in bytes

 private:
  std::span<std::byte> bytes_;
  pcie::Iova at_;
};

class QueueHost : public testing::Test {
 protected:
  static constexpr pcie::Iova kBase = 0x10000;
  static constexpr std::size_t kSize = 0x10000;
  static constexpr pcie::Iova kPage = 0x1000;

  QueueHost() { EXPECT_TRUE(dma.map(kBase, kSize, memory.data(), pcie::DmaAccess::kReadWrite)); }
  std::byte* at(pcie::Iova iova) { return &memory[iova - kBase]; }
  /// Moves the same memory behind the peer, with no mapping left.
  void make_remote() {
    dma.unmap_all();
    EXPECT_TRUE(dma.map_remote(kBase, kSize, peer, pcie::DmaAccess::kReadWrite));
  }
  QueueMemory pages(std::vector<pcie::Iova> list, std::uint64_t offset, std::uint64_t size) {
    return QueueMemory::over_pages(dma, std::move(list), 12, offset, size);
  }

  std::vector<std::byte> memory = std::vector<std::byte>(kSize);
  PeerMemory peer{memory, kBase};
  pcie::DmaSpace dma;
};

}  // namespace softhca::hca
