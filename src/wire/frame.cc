#include "wire/frame.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>

#include "util/endian.h"
#include "wire/checksum.h"
#include "wire/icrc.h"
#include "wire/vcrc.h"

namespace softhca::wire {

/// Copies everything but the owned memory; of the arrays, little more than the used part.
[[gnu::always_inline]] inline void Frame::copy_parts(const Frame& other) {
  // Nearly every head fits. Copying this many bytes takes a few moves and no call.
  constexpr std::size_t kUsualHead = 96;
  shape_ = other.shape_;
  std::memcpy(head_.data(), other.head_.data(), kUsualHead);
  if (shape_.head_size > kUsualHead) {
    std::memcpy(head_.data() + kUsualHead, other.head_.data() + kUsualHead,
                shape_.head_size - kUsualHead);
  }
  tail_ = other.tail_;
  if (has_values()) {
    path_ = other.path_;
    values_ = other.values_;
  } else {
    path_.flow = other.path_.flow;
    if (shape_.headers == Headers::kBytesButChecksum) checksum_ = other.checksum_;
  }
  for (unsigned i = 0; i != shape_.segment_count; ++i) segments_[i] = other.segments_[i];
}

[[gnu::noinline]] void FrameContents::complete_head() const {
  if (shape_.headers == Headers::kValues) return write_headers();
  put_checksum(checksum_, head_.data(), ChecksumSum::of(segments_[0]));
  shape_.headers = Headers::kBytes;
}

/// Makes the bytes of headers stored as values, and zeros for pad and CRCs.
void FrameContents::write_headers() const {
  const auto vcrc_size = shape_.link == Link::kInfiniband ? kVcrcSize : 0;
  const auto rest = shape_.headers_size - path_.size + shape_.packet_payload + shape_.tail_size;
  wire::write_headers(path_, values_, static_cast<std::size_t>(rest) - vcrc_size,
                      std::span(head_).first(shape_.headers_size));
  tail_.fill(std::byte{0});
  shape_.headers = Headers::kBoth;
}

bool FrameContents::owns(std::span<const std::byte> segment) const {
  // std::less also orders pointers into different objects.
  const std::less<const std::byte*> less;
  return !owned_.empty() && !less(segment.data(), owned_.data()) &&
         less(segment.data(), owned_.data() + owned_.size());
}

Frame& Frame::operator=(const Frame& other) {
  if (this == &other) return *this;
  copy_parts(other);
  if (other.owned_.empty()) return *this;
  bool copied = false;
  for (auto& segment : std::span(segments_).first(shape_.segment_count)) {
    if (!other.owns(segment)) continue;
    if (!copied) owned_.assign(other.owned_.begin(), other.owned_.end());
    copied = true;
    segment = {owned_.data() + (segment.data() - other.owned_.data()), segment.size()};
  }
  return *this;
}

Frame& Frame::operator=(Frame&& other) noexcept {
  if (this == &other) return *this;
  copy_parts(other);
  owned_ = std::move(other.owned_);  // the memory does not move, so the segments stay valid
  other.owned_.clear();
  other.clear();
  return *this;
}

std::span<std::byte> Frame::own_payload_so_far(std::size_t size) {
  const auto done = shape_.payload_size;
  assert(done <= size && size != 0 &&
         std::ranges::none_of(segments(), [&](auto s) { return owns(s); }));
  owned_.resize(size);
  auto* to = owned_.data();
  for (const auto& segment : segments()) {
    std::memcpy(to, segment.data(), segment.size());
    to += segment.size();
  }
  segments_[0] = owned_;
  shape_.segment_count = 1;
  shape_.payload_size = size;
  return std::span(owned_).subspan(done);
}

std::size_t Frame::own_segments() {
  if (shape_.segment_count == 0 || (shape_.segment_count == 1 && owns(segments_[0]))) return 0;
  std::vector<std::byte> bytes;
  bytes.reserve(shape_.payload_size);
  for (const auto& segment : segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
  owned_ = std::move(bytes);
  segments_[0] = owned_;
  shape_.segment_count = 1;
  return owned_.size();
}

void Frame::compute_icrc() {
  if (shape_.icrc != Icrc::kDeferred) return;
  (void)head();  // makes the tail's bytes
  put_crcs(tail_.data() + shape_.tail_size);
  shape_.icrc = Icrc::kPresent;
}

void FrameContents::copy_range(std::size_t offset, std::span<std::byte> out) const {
  std::byte* at = out.data();
  for_each_piece(offset, out.size(), [&](std::span<const std::byte> piece) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  });
}

void Frame::copy_to(std::span<std::byte> out) const {
  assert(out.size() >= size() && packets() == 1);
  copy_range(0, out.first(size()));
  if (shape_.icrc == Icrc::kDeferred) put_crcs(out.data() + size());
}

/// Writes the CRCs of this frame to the bytes before `end`.
void Frame::put_crcs(std::byte* end) const {
  const auto start = find_icrc_start(*this);
  const auto vcrc_size = shape_.link == Link::kInfiniband ? kVcrcSize : 0;
  assert(start && shape_.tail_size >= kIcrcSize + vcrc_size &&
         "a frame without the headers of IBA");
  auto* const icrc = end - vcrc_size - kIcrcSize;
  util::store_le32(icrc, icrc_of(*this, *start, size() - vcrc_size - kIcrcSize));
  if (vcrc_size == 0) return;
  const auto covered = size() - vcrc_size;
  const auto before = vcrc_of(*this, covered - kIcrcSize);
  util::store_le16(icrc + kIcrcSize, vcrc_of({icrc, kIcrcSize}, before));
}

}  // namespace softhca::wire
