// WQEs of an SQ (PRM 7.4.4.1): control segment, Eth segment with inline headers, pieces.
#include <algorithm>
#include <cstring>

#include "driver/connectx/queue_sizes.h"
#include "driver/connectx/send_queue.h"
#include "util/copy_short.h"
#include "util/field.h"

namespace softhca::driver::connectx {

using spec::data_segment_pointer;
using spec::wqe_completion;
using spec::wqe_ctrl_segment;
using spec::wqe_eth_segment;
using spec::wqe_opcode;

namespace {

/// Bytes of control and Eth segment that every request has.
constexpr std::size_t kFrameFixed = wqe_ctrl_segment::kSize + wqe_eth_segment::kSize;

/// Offset of the inline headers.
constexpr std::size_t kHeader = wqe_ctrl_segment::kSize + wqe_eth_segment::inline_headers_offset;

wqe_completion completion_of(const FrameRequest& request) {
  return request.signaled ? wqe_completion::CQE : wqe_completion::ON_ERROR;
}

void write_piece(std::span<std::byte> segment, const Sge& piece) {
  const util::MutableView<data_segment_pointer> data(segment);
  std::memset(segment.data(), 0, kUnit);
  data.set(data_segment_pointer::byte_count, piece.length);
  data.set(data_segment_pointer::l_key, piece.lkey);
  data.set(data_segment_pointer::local_address, piece.address);
}

/// Bytes of the Eth segment with its headers (PRM 7.4.4.1.2).
std::size_t eth_size(std::size_t header) {
  const auto end =
      std::max(wqe_eth_segment::kSize, wqe_eth_segment::inline_headers_offset + header);
  return (end + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

unsigned SendQueue::blocks_per_frame(const Limits& limits) {
  return blocks_of(wqe_ctrl_segment::kSize + eth_size(limits.inline_size) + limits.pieces * kUnit);
}

PostStatus SendQueue::post_frame(const FrameRequest& request) {
  // Fast path: nearly every request differs from the last only in its headers and its piece.
  const auto& seen = seen_;
  if (seen.header_size == 0 || request.header.size() != seen.header_size ||
      request.pieces.size() != 1 || request.pieces[0].length == 0 ||
      request.segment_size != seen.segment_size || request.checksums != seen.checksums ||
      head_ - tail_ > mask_) {
    return post_frame_closely(request);
  }
  const auto at = std::size_t{head_ & mask_} * kBlock;
  auto fixed = seen.fixed;
  const util::MutableView<wqe_ctrl_segment> control(fixed);
  control.set(wqe_ctrl_segment::wqe_index, head_ & wqe_ctrl_segment::wqe_index.kMax);
  control.set(wqe_ctrl_segment::ce, static_cast<std::uint32_t>(completion_of(request)));
  auto* const block = ring_.data() + at;
  std::memcpy(block, fixed.data(), fixed.size());
  util::copy_header(block + kHeader, request.header.data(), seen.header_size);
  write_piece({block + seen.data_offset, kUnit}, request.pieces[0]);
  entries_[head_ & mask_] = {request.id, 1};
  last_ = head_++;
  return PostStatus::kOk;
}

PostStatus SendQueue::post_frame_closely(const FrameRequest& request) {
  if (request.header.size() > limits_.inline_size) return PostStatus::kInlineTooLong;
  if (request.pieces.size() > limits_.pieces) return PostStatus::kTooManyPieces;
  if (request.segment_size > wqe_eth_segment::mss.kMax) return PostStatus::kBadRequest;
  const auto header_size = eth_size(request.header.size());
  auto size = wqe_ctrl_segment::kSize + header_size;
  for (const auto& piece : request.pieces) size += piece.length == 0 ? 0 : kUnit;
  const auto blocks = blocks_of(size);
  if (head_ - tail_ + blocks > mask_ + 1) return PostStatus::kQueueFull;

  // The fixed part is contiguous, because requests begin at a block. The rest may wrap, unit by
  // unit.
  auto at = std::size_t{head_ & mask_} * kBlock;
  const auto fixed = ring_.subspan(at, kFrameFixed);
  std::memset(fixed.data(), 0, kFrameFixed);
  const util::MutableView<wqe_ctrl_segment> control(fixed);
  const auto opcode = request.segment_size != 0 ? wqe_opcode::LSO : wqe_opcode::SEND;
  control.set(wqe_ctrl_segment::opcode, static_cast<std::uint32_t>(opcode));
  control.set(wqe_ctrl_segment::wqe_index, head_ & wqe_ctrl_segment::wqe_index.kMax);
  control.set(wqe_ctrl_segment::sq_number, number_);
  control.set(wqe_ctrl_segment::ds, static_cast<std::uint32_t>(size / kUnit));
  control.set(wqe_ctrl_segment::ce, static_cast<std::uint32_t>(completion_of(request)));
  const util::MutableView<wqe_eth_segment> eth(fixed.subspan(wqe_ctrl_segment::kSize));
  eth.set(wqe_eth_segment::l3cs, request.checksums);
  eth.set(wqe_eth_segment::l4cs, request.checksums);
  eth.set(wqe_eth_segment::mss, request.segment_size);
  eth.set(wqe_eth_segment::inline_header_size, static_cast<std::uint32_t>(request.header.size()));
  see_frame(request, fixed, blocks);
  const auto header_at = at + kHeader;
  put(header_at & (ring_.size() - 1), request.header);
  at = (at + wqe_ctrl_segment::kSize + header_size) & (ring_.size() - 1);
  for (const auto& piece : request.pieces) {
    if (piece.length == 0) continue;  // the device reads a 0 as 2^31 bytes
    write_piece(ring_.subspan(at, kUnit), piece);
    at = (at + kUnit) & (ring_.size() - 1);
  }
  entries_[head_ & mask_] = {request.id, blocks};
  last_ = head_;
  head_ += blocks;
  return PostStatus::kOk;
}

/// `fixed`: the request's control and Eth segment, without headers.
void SendQueue::see_frame(const FrameRequest& request, std::span<const std::byte> fixed,
                          std::uint32_t blocks) {
  seen_.header_size = 0;
  if (blocks != 1 || request.pieces.size() != 1 || request.pieces[0].length == 0) return;
  seen_.header_size = request.header.size();
  seen_.data_offset = wqe_ctrl_segment::kSize + eth_size(request.header.size());
  seen_.segment_size = request.segment_size;
  seen_.checksums = request.checksums;
  std::memcpy(seen_.fixed.data(), fixed.data(), seen_.fixed.size());
}

}  // namespace softhca::driver::connectx
