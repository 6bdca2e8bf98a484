#include "connectx/queue/work_ring.h"

#include <algorithm>

namespace softhca::connectx {

bool WorkRing::refresh(DoorbellRecord& record) {
  const auto counter = record.read(geometry_.record_dword);
  if (!counter) return false;
  // The kernel writes the send counter unmasked: only the low 16 bits count.
  const auto posted = static_cast<std::uint16_t>(*counter);
  if (static_cast<std::uint16_t>(posted - consumed_) > count()) return false;
  posted_ = posted;
  return true;
}

bool WorkRing::has_news(DoorbellRecord& record) const {
  const auto counter = record.read(geometry_.record_dword);
  if (!counter) return false;
  const auto posted = static_cast<std::uint16_t>(*counter);
  return posted != posted_ && static_cast<std::uint16_t>(posted - consumed_) <= count();
}

bool WorkRing::read(QueueBuffer& buffer, std::uint32_t skip, std::span<std::byte> out) const {
  const std::uint64_t size = std::uint64_t{count()} << geometry_.log_stride;
  const std::uint32_t entry = (consumed_ + skip) & (count() - 1);
  const std::uint64_t start = std::uint64_t{entry} << geometry_.log_stride;
  const auto head = std::min<std::uint64_t>(out.size(), size - start);
  if (!buffer.read(geometry_.offset + start, out.first(head))) return false;
  return head == out.size() || buffer.read(geometry_.offset, out.subspan(head));
}

}  // namespace softhca::connectx
