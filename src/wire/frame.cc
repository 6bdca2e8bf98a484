#include "wire/frame.h"

#include <functional>

#include "util/endian.h"
#include "wire/icrc.h"
#include "wire/vcrc.h"

namespace softhca::wire {

/// All but the owned memory. Only the part of the arrays that is in use.
void Frame::copy_parts(const Frame& other) {
  head_size_ = other.head_size_;
  tail_size_ = other.tail_size_;
  segment_count_ = other.segment_count_;
  payload_size_ = other.payload_size_;
  icrc_ = other.icrc_;
  link_ = other.link_;
  train_ = other.train_;
  std::memcpy(head_.data(), other.head_.data(), head_size_);
  std::memcpy(tail_.data(), other.tail_.data(), tail_size_);
  std::copy_n(other.segments_.begin(), segment_count_, segments_.begin());
}

bool Frame::owns(std::span<const std::byte> segment) const {
  // std::less orders pointers into different objects too.
  const std::less<const std::byte*> less;
  return !owned_.empty() && !less(segment.data(), owned_.data()) &&
         less(segment.data(), owned_.data() + owned_.size());
}

Frame& Frame::operator=(const Frame& other) {
  if (this == &other) return *this;
  copy_parts(other);
  if (other.owned_.empty()) return *this;
  bool copied = false;
  for (auto& segment : std::span(segments_).first(segment_count_)) {
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
  owned_ = std::move(other.owned_);  // keeps its address: the segments stay right
  other.owned_.clear();
  other.clear();
  return *this;
}

std::size_t Frame::own_segments() {
  if (segment_count_ == 0 || (segment_count_ == 1 && owns(segments_[0]))) return 0;
  std::vector<std::byte> bytes;
  bytes.reserve(payload_size_);
  for (const auto& segment : segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
  owned_ = std::move(bytes);
  segments_[0] = owned_;
  segment_count_ = 1;
  return owned_.size();
}

void Frame::compute_icrc() {
  if (icrc_ != Icrc::kDeferred) return;
  put_crcs(tail_.data() + tail_size_);
  icrc_ = Icrc::kPresent;
}

void Frame::copy_range(std::size_t offset, std::span<std::byte> out) const {
  std::byte* at = out.data();
  for_each_piece(offset, out.size(), [&](std::span<const std::byte> piece) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  });
}

void Frame::copy_to(std::span<std::byte> out) const {
  assert(out.size() >= size() && packets() == 1);
  copy_range(0, out.first(size()));
  if (icrc_ == Icrc::kDeferred) put_crcs(out.data() + size());
}

/// Writes the CRCs of this frame to the bytes before `end`.
void Frame::put_crcs(std::byte* end) const {
  const auto start = find_icrc_start(*this);
  const auto vcrc_size = link_ == Link::kInfiniband ? kVcrcSize : 0;
  assert(start && tail_size_ >= kIcrcSize + vcrc_size && "a frame without the headers of IBA");
  auto* const icrc = end - vcrc_size - kIcrcSize;
  util::store_le32(icrc, icrc_of(*this, *start, size() - vcrc_size - kIcrcSize));
  if (vcrc_size == 0) return;
  const auto covered = size() - vcrc_size;
  const auto before = vcrc_of(*this, covered - kIcrcSize);
  util::store_le16(icrc + kIcrcSize, vcrc_of({icrc, kIcrcSize}, before));
}

}  // namespace softhca::wire
