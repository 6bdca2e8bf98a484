// Page lists and layout of queues in the program's memory.
#pragma once

#include <rdma/mlx5-abi.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "util/endian.h"
#include "uverbs/device.h"
#include "uverbs/user_memory.h"

namespace softhca::uverbs {

inline constexpr std::uint64_t kPage = 4096;

/// Pages of a queue of `size` bytes at `address`, which need not be page-aligned.
inline std::uint64_t pages_of(std::uint64_t address, std::uint64_t size) {
  return (address % kPage + size + kPage - 1) / kPage;
}
/// Unit of `page_offset` in contexts: a queue may begin at any multiple of it.
inline constexpr std::uint64_t kPagePart = kPage / 64;
inline std::uint32_t page_offset_of(std::uint64_t address) {
  return static_cast<std::uint32_t>(address % kPage / kPagePart);
}

/// Bytes of a doorbell record.
inline constexpr std::uint64_t kRecordSize = 8;
/// Alignment of doorbell records (PRM 7.4.2, 7.12.2).
inline constexpr std::uint64_t kWorkRecordAlignment = 4;
inline constexpr std::uint64_t kCqRecordAlignment = 8;
/// Whether the device can use a queue and its record at these addresses. mlx5_ib checks neither:
/// the device refuses the command, which is EINVAL.
constexpr bool are_aligned(std::uint64_t queue, std::uint64_t record, std::uint64_t alignment) {
  return queue % kPagePart == 0 && record % alignment == 0;
}
/// The same for a WQ, whose page_offset has five bits (PRM Table 55).
inline bool is_place_of_wq(std::uint64_t queue, std::uint64_t record) {
  return are_aligned(queue, record, kWorkRecordAlignment) && page_offset_of(queue) < 32;
}

/// Fills a list with the bus addresses of consecutive pages, as many as it holds.
inline void store_pages(std::span<std::byte> list, std::uint64_t address) {
  const auto first = address - address % kPage;
  for (std::size_t i = 0; i != list.size() / sizeof(std::uint64_t); ++i) {
    util::store_be64(list.data() + i * sizeof(std::uint64_t),
                     Device::bus_address(first + i * kPage));
  }
}

/// Scatter entries (16 bytes each) in a receive request of a QP. A signature takes one of them.
constexpr std::uint32_t receive_sges(const mlx5_ib_create_qp& in) {
  if (in.rq_wqe_count == 0) return 0;
  return (1u << in.rq_wqe_shift) / 16 - ((in.flags & MLX5_QP_FLAG_SIGNATURE) != 0 ? 1u : 0u);
}

inline unsigned log2_of(std::uint64_t power) {
  return static_cast<unsigned>(std::countr_zero(power));
}

/// Whether [address, address + size) is the program's memory, and both readable and writable.
inline bool is_there(const UserMemory& memory, std::uint64_t address, std::uint64_t size) {
  if (address + size < address || address + size > Device::kProgramMemory) return false;
  for (auto at = address; at < address + size; at = (at | (kPage - 1)) + 1) {
    std::byte byte;
    if (!memory.read(at, std::span(&byte, 1)) || !memory.write(at, std::span(&byte, 1))) {
      return false;
    }
  }
  return true;
}
/// The same for a queue of `size` bytes and its doorbell record.
inline bool are_there(const UserMemory& memory, std::uint64_t queue, std::uint64_t size,
                      std::uint64_t record) {
  return is_there(memory, queue, size) && is_there(memory, record, kRecordSize);
}

}  // namespace softhca::uverbs
