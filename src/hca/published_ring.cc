#include "hca/published_ring.h"

#include <cassert>

namespace softhca::hca {

bool PublishedRing::publish(std::span<const std::byte> entry) {
  assert(entry.size() >= kDword && entry.size() <= geometry_.stride);
  const auto offset = place(entry.size());
  if (auto* to = memory_.at(offset, entry.size())) {
    publish_at(to, entry);
    return true;
  }
  const auto body = entry.size() - kDword;
  if (!memory_.write(offset, entry.first(body)) ||
      !memory_.write(offset + body, entry.subspan(body))) {
    return false;
  }
  producer_ = (producer_ + 1) & mask_;
  return true;
}

}  // namespace softhca::hca
