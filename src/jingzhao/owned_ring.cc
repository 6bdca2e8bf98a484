#include "jingzhao/owned_ring.h"

namespace softhca::jingzhao {

OwnedRing::Written OwnedRing::write_slow(std::uint64_t offset, const Entry& entry) {
  const std::span<const std::byte> bytes = entry;
  Last last;
  if (!memory_.read(offset + kBody, last)) return Written::kGone;
  if (!is_ours(last)) return Written::kFull;
  if (!memory_.write(offset, bytes.first(kBody)) ||
      !memory_.write(offset + kBody, bytes.subspan(kBody))) {
    return Written::kGone;
  }
  ++producer_;
  return Written::kYes;
}

bool OwnedRing::unreturned(std::uint32_t newer) {
  Last last;
  return memory_.read(place(producer_ - 1 - newer) + kBody, last) && !is_ours(last);
}

}  // namespace softhca::jingzhao
