#include "jingzhao/owned_ring.h"

namespace softhca::jingzhao {

OwnedRing::Written OwnedRing::write_afar(std::uint64_t offset,
                                         std::span<const std::byte, kEntry> entry) {
  Last last;
  if (!memory_.read(offset + kBody, last)) return Written::kGone;
  if (!is_ours(last)) return Written::kFull;
  if (!memory_.write(offset, entry.first(kBody)) ||
      !memory_.write(offset + kBody, entry.subspan(kBody))) {
    return Written::kGone;
  }
  advance();
  return Written::kYes;
}

bool OwnedRing::last_unreturned() {
  const auto mask = (std::uint32_t{1} << log_count_) - 1;
  const auto offset = std::uint64_t{(producer_ - 1) & mask} * kEntry;
  Last last;
  return memory_.read(offset + kBody, last) && !is_ours(last);
}

}  // namespace softhca::jingzhao
