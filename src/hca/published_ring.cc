#include "hca/published_ring.h"

#include <cassert>
#include <cstring>

namespace softhca::hca {

namespace {

constexpr std::size_t kDword = sizeof(std::uint32_t);

}  // namespace

bool PublishedRing::publish(std::span<const std::byte> entry) {
  assert(entry.size() >= kDword && entry.size() <= geometry_.stride);
  const std::uint32_t place = geometry_.collapsed ? 0 : producer_ & (size() - 1);
  const auto offset = std::uint64_t{place} * geometry_.stride + geometry_.stride - entry.size();
  const auto body = entry.size() - kDword;
  if (auto* to = memory_.at(offset, entry.size())) {
    std::memcpy(to, entry.data(), body);
    std::uint32_t last;
    std::memcpy(&last, entry.data() + body, kDword);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(to + body), last, __ATOMIC_RELEASE);
  } else if (!memory_.write(offset, entry.first(body)) ||
             !memory_.write(offset + body, entry.subspan(body))) {
    return false;
  }
  producer_ = (producer_ + 1) & mask();
  return true;
}

}  // namespace softhca::hca
