// WQEs of an SQ (PRM 7.4.4.1): control segment, Eth segment with inline headers, pieces.
#include "driver/connectx/frame_send_queue.h"

#include <algorithm>
#include <cstring>

#include "driver/connectx/queue_sizes.h"
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

unsigned FrameSendQueue::blocks_per_request(const Limits& limits) {
  return blocks_of(wqe_ctrl_segment::kSize + eth_size(limits.inline_size) + limits.pieces * kUnit);
}

PostStatus FrameSendQueue::post(const FrameRequest& request) {
  // Fast path: nearly every request differs from the last only in its headers and its piece.
  const auto& last = template_;
  if (last.header_size == 0 || request.header.size() != last.header_size ||
      request.pieces.size() != 1 || request.pieces[0].length == 0 ||
      request.segment_size != last.segment_size || request.checksums != last.checksums ||
      !has_room(1)) {
    return post_any(request);
  }
  auto fixed = last.fixed;
  const util::MutableView<wqe_ctrl_segment> control(fixed);
  control.set(wqe_ctrl_segment::wqe_index, producer());
  control.set(wqe_ctrl_segment::ce, static_cast<std::uint32_t>(completion_of(request)));
  auto* const block = ring().data() + place();
  std::memcpy(block, fixed.data(), fixed.size());
  util::copy_header(block + kHeader, request.header.data(), last.header_size);
  write_piece({block + last.data_offset, kUnit}, request.pieces[0]);
  add(request.id, 1);
  return PostStatus::kOk;
}

PostStatus FrameSendQueue::post_any(const FrameRequest& request) {
  if (request.header.size() > limits().inline_size) return PostStatus::kInlineTooLong;
  if (request.pieces.size() > limits().pieces) return PostStatus::kTooManyPieces;
  if (request.segment_size > wqe_eth_segment::mss.kMax) return PostStatus::kBadRequest;
  const auto header_size = eth_size(request.header.size());
  auto size = wqe_ctrl_segment::kSize + header_size;
  for (const auto& piece : request.pieces) size += piece.length == 0 ? 0 : kUnit;
  const auto blocks = blocks_of(size);
  if (!has_room(blocks)) return PostStatus::kQueueFull;

  // The fixed part is contiguous, because requests begin at a block. The rest may wrap, unit by
  // unit.
  auto at = place();
  const auto fixed = ring().subspan(at, kFrameFixed);
  std::memset(fixed.data(), 0, kFrameFixed);
  const util::MutableView<wqe_ctrl_segment> control(fixed);
  const auto opcode = request.segment_size != 0 ? wqe_opcode::LSO : wqe_opcode::SEND;
  control.set(wqe_ctrl_segment::opcode, static_cast<std::uint32_t>(opcode));
  control.set(wqe_ctrl_segment::wqe_index, producer());
  control.set(wqe_ctrl_segment::sq_number, number());
  control.set(wqe_ctrl_segment::ds, static_cast<std::uint32_t>(size / kUnit));
  control.set(wqe_ctrl_segment::ce, static_cast<std::uint32_t>(completion_of(request)));
  const util::MutableView<wqe_eth_segment> eth(fixed.subspan(wqe_ctrl_segment::kSize));
  eth.set(wqe_eth_segment::l3cs, request.checksums);
  eth.set(wqe_eth_segment::l4cs, request.checksums);
  eth.set(wqe_eth_segment::mss, request.segment_size);
  eth.set(wqe_eth_segment::inline_header_size, static_cast<std::uint32_t>(request.header.size()));
  make_template(request, fixed, blocks);
  put(wrap(at + kHeader), request.header);
  at = wrap(at + wqe_ctrl_segment::kSize + header_size);
  for (const auto& piece : request.pieces) {
    if (piece.length == 0) continue;  // the device reads a 0 as 2^31 bytes
    write_piece(ring().subspan(at, kUnit), piece);
    at = wrap(at + kUnit);
  }
  add(request.id, blocks);
  return PostStatus::kOk;
}

/// `fixed`: the request's control and Eth segment, without headers.
void FrameSendQueue::make_template(const FrameRequest& request, std::span<const std::byte> fixed,
                                   std::uint32_t blocks) {
  template_.header_size = 0;
  if (blocks != 1 || request.pieces.size() != 1 || request.pieces[0].length == 0) return;
  template_.header_size = request.header.size();
  template_.data_offset = wqe_ctrl_segment::kSize + eth_size(request.header.size());
  template_.segment_size = request.segment_size;
  template_.checksums = request.checksums;
  std::memcpy(template_.fixed.data(), fixed.data(), template_.fixed.size());
}

}  // namespace softhca::driver::connectx
