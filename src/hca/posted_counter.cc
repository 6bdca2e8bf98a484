#include "hca/posted_counter.h"

namespace softhca::hca {

std::optional<std::uint32_t> PostedCounter::refresh(DoorbellRecord& record) {
  const auto counter = record.read(record_dword_);
  if (!counter) return std::nullopt;
  // Software may write its counter unmasked: only the low 16 bits count.
  if (*counter != stale_) stale_ = 0;
  const auto posted = static_cast<std::uint16_t>(*counter - stale_);
  const auto available = static_cast<std::uint16_t>(posted - consumed_);
  if (available > size_) return std::nullopt;
  posted_ = posted;
  rung_ = false;
  return available;
}

bool PostedCounter::has_news(DoorbellRecord& record) const {
  const auto counter = record.read(record_dword_);
  if (!counter) return false;
  const auto posted = *counter == stale_ ? std::uint16_t{0} : static_cast<std::uint16_t>(*counter);
  return posted != posted_ && static_cast<std::uint16_t>(posted - consumed_) <= size_;
}

}  // namespace softhca::hca
