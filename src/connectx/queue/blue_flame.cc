#include "connectx/queue/blue_flame.h"

#include <algorithm>
#include <ranges>

namespace softhca::connectx {

void BlueFlame::write(UarPage page, std::uint32_t offset, std::span<const std::byte> in) {
  const auto at = offset % kSize;
  if (at + in.size() > kSize) return;
  Buffer* buffer = nullptr;
  if (at == 0) {
    if (count_ == kBuffers) return;
    buffer = &buffers_[count_++];
    buffer->page = page;
    buffer->offset = offset;
  } else {
    // A WQE that is longer than a combined write arrives in several writes.
    auto known = std::span(buffers_).first(count_) | std::views::reverse;
    const auto found = std::ranges::find_if(known, [&](const Buffer& b) {
      return b.page == page && b.offset + at == offset && b.filled == at;
    });
    if (found == known.end()) return;
    buffer = &*found;
  }
  std::ranges::copy(in, buffer->bytes.begin() + at);
  buffer->filled = static_cast<std::uint32_t>(at + in.size());
}

std::size_t BlueFlame::take(Qpn number, std::uint16_t index, std::span<std::byte> wqe) const {
  for (const auto& buffer : std::span(buffers_).first(count_) | std::views::reverse) {
    const auto control = SendWqeControl::parse(buffer.bytes);
    if (control.qpn != number || control.index != index) continue;
    const auto size = control.units * kWqeUnit;
    if (size == 0 || size > buffer.filled) return 0;
    std::ranges::copy(std::span(buffer.bytes).first(size), wqe.begin());
    return size;
  }
  return 0;
}

}  // namespace softhca::connectx
