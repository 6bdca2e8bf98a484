#include "hca/work_ring.h"

#include <algorithm>

namespace softhca::hca {

bool WorkRing::read(QueueMemory& memory, std::uint32_t skip, std::span<std::byte> out) const {
  const std::uint64_t bytes = std::uint64_t{size()} << log_stride_;
  const std::uint32_t entry = (consumed() + skip) & (size() - 1);
  const std::uint64_t start = std::uint64_t{entry} << log_stride_;
  const auto head = std::min<std::uint64_t>(out.size(), bytes - start);
  if (!memory.read(offset_ + start, out.first(head))) return false;
  return head == out.size() || memory.read(offset_, out.subspan(head));
}

}  // namespace softhca::hca
