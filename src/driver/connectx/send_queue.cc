#include "driver/connectx/send_queue.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "driver/connectx/queue_sizes.h"
#include "util/copy_short.h"
#include "util/field.h"

namespace softhca::driver::connectx {

using spec::data_segment_inline;
using spec::data_segment_pointer;
using spec::wqe_atomic_segment;
using spec::wqe_completion;
using spec::wqe_ctrl_segment;
using spec::wqe_fence;
using spec::wqe_opcode;
using spec::wqe_raddr_segment;

namespace {

constexpr std::uint32_t kAtomicSize = 8;

/// The start of a WQE: its opcode, and the segments before the data.
struct Form {
  wqe_opcode opcode;
  bool has_remote_address = false;
  bool is_atomic = false;
  bool reads = false;  ///< the device writes to its pieces
};

/// Indexed by SendOpcode.
constexpr Form kForms[] = {
    {.opcode = wqe_opcode::SEND},
    {.opcode = wqe_opcode::SEND_IMM},
    {.opcode = wqe_opcode::RDMA_WRITE, .has_remote_address = true},
    {.opcode = wqe_opcode::RDMA_WRITE_IMM, .has_remote_address = true},
    {.opcode = wqe_opcode::RDMA_READ, .has_remote_address = true, .reads = true},
    {.opcode = wqe_opcode::ATOMIC_CS, .has_remote_address = true, .is_atomic = true, .reads = true},
    {.opcode = wqe_opcode::ATOMIC_FA, .has_remote_address = true, .is_atomic = true, .reads = true},
};
static_assert(std::size(kForms) == static_cast<std::size_t>(SendOpcode::kFetchAdd) + 1);

const Form& form_of(SendOpcode opcode) { return kForms[static_cast<std::size_t>(opcode)]; }

/// Appends segments to a WQE in the ring. Inline data may straddle the end of the ring; a segment
/// never does.
class Writer {
 public:
  Writer(std::span<std::byte> ring, std::size_t begin) : ring_(ring), begin_(begin) {}

  /// `fill` sets the fields of a zeroed local copy of a segment, so that each byte of the device's
  /// memory is written once.
  template <class Layout, class Fill>
  void append(Fill&& fill) {
    store<Layout>(place(), fill);
    size_ += kUnit;
  }
  /// Leaves room for a segment; returns its offset for store().
  std::size_t reserve() {
    const auto reserved = place();
    size_ += kUnit;
    return reserved;
  }
  template <class Layout, class Fill>
  void store(std::size_t at, Fill&& fill) {
    static_assert(Layout::kSize == kUnit);
    std::array<std::byte, kUnit> segment{};
    fill(util::MutableView<Layout>(segment));
    std::memcpy(ring_.data() + at, segment.data(), kUnit);
  }
  void append_inline(std::span<const std::byte> data) {
    std::array<std::byte, data_segment_inline::kSize> bytes{};
    const util::MutableView<data_segment_inline> header(bytes);
    header.set(data_segment_inline::inline_, 1);
    header.set(data_segment_inline::byte_count, static_cast<std::uint32_t>(data.size()));
    const auto at = place();
    std::memcpy(ring_.data() + at, bytes.data(), data_segment_inline::data_offset);
    const auto begin = at + data_segment_inline::data_offset;
    if (data.size() <= ring_.size() - begin) {
      util::copy_short(ring_.data() + begin, data.data(), data.size());
    } else {
      const auto first = ring_.size() - begin;
      std::memcpy(ring_.data() + begin, data.data(), first);
      std::memcpy(ring_.data(), data.data() + first, data.size() - first);
    }
    size_ += inline_segment_size(data.size());
  }
  std::size_t size() const { return size_; }

 private:
  /// Offset in the ring of the next byte.
  std::size_t place() const { return (begin_ + size_) & (ring_.size() - 1); }

  std::span<std::byte> ring_;
  std::size_t begin_;
  std::size_t size_ = 0;  ///< bytes so far
};

}  // namespace

unsigned SendQueue::blocks_per_request(const Limits& limits) {
  const auto inline_size = limits.inline_size == 0 ? 0 : inline_segment_size(limits.inline_size);
  const auto data = std::max(limits.pieces * kUnit, inline_size);
  // Control, remote address, atomic operands, data.
  return blocks_of(3 * kUnit + data);
}

inline PostStatus SendQueue::check(const SendRequest& request) const {
  const auto pieces = request.pieces.size();
  const auto& form = form_of(request.opcode);
  if (!request.inline_data.empty()) {
    if (request.inline_data.size() > limits().inline_size) return PostStatus::kInlineTooLong;
    if (form.reads || pieces != 0) return PostStatus::kBadRequest;
  }
  if (pieces > limits().pieces) return PostStatus::kTooManyPieces;
  if (form.is_atomic && (pieces != 1 || request.pieces[0].length != kAtomicSize)) {
    return PostStatus::kBadRequest;
  }
  return PostStatus::kOk;
}

inline unsigned SendQueue::size_of(const SendRequest& request) {
  const auto& form = form_of(request.opcode);
  auto size = (1u + form.has_remote_address + form.is_atomic + request.pieces.size()) * kUnit;
  if (!request.inline_data.empty()) size += inline_segment_size(request.inline_data.size());
  return static_cast<unsigned>(size);
}

PostStatus SendQueue::post(const SendRequest& request) {
  if (const auto status = check(request); status != PostStatus::kOk) return status;
  const auto blocks = blocks_of(size_of(request));
  if (!has_room(blocks)) return PostStatus::kQueueFull;

  const auto& form = form_of(request.opcode);
  Writer wqe(ring(), place());
  const auto control_place = wqe.reserve();
  if (form.has_remote_address) {
    wqe.append<wqe_raddr_segment>([&](auto remote) {
      remote.set(wqe_raddr_segment::raddr, request.remote_address);
      remote.set(wqe_raddr_segment::rkey, request.rkey);
    });
  }
  if (form.is_atomic) {
    wqe.append<wqe_atomic_segment>([&](auto operands) {
      operands.set(wqe_atomic_segment::swap_add, request.swap_or_add);
      operands.set(wqe_atomic_segment::compare, request.compare);
    });
  }
  if (!request.inline_data.empty()) wqe.append_inline(request.inline_data);
  for (const auto& piece : request.pieces) {
    if (piece.length == 0) continue;  // the device reads a 0 as 2^31 bytes
    wqe.append<data_segment_pointer>([&](auto data) {
      data.set(data_segment_pointer::byte_count, piece.length);
      data.set(data_segment_pointer::l_key, piece.lkey);
      data.set(data_segment_pointer::local_address, piece.address);
    });
  }
  const auto completion = request.signaled ? wqe_completion::CQE : wqe_completion::ON_ERROR;
  const auto fence = request.fence ? wqe_fence::FENCE : wqe_fence::NO_FENCE;
  wqe.store<wqe_ctrl_segment>(control_place, [&](auto control) {
    control.set(wqe_ctrl_segment::opcode, static_cast<std::uint32_t>(form.opcode));
    control.set(wqe_ctrl_segment::wqe_index, producer());
    control.set(wqe_ctrl_segment::sq_number, number());
    control.set(wqe_ctrl_segment::ds, static_cast<std::uint32_t>(wqe.size() / kUnit));
    control.set(wqe_ctrl_segment::ce, static_cast<std::uint32_t>(completion));
    control.set(wqe_ctrl_segment::fm, static_cast<std::uint32_t>(fence));
    control.set(wqe_ctrl_segment::se, request.solicited);
    control.set(wqe_ctrl_segment::imm, request.immediate);
  });

  add(request.id, blocks);
  return PostStatus::kOk;
}

}  // namespace softhca::driver::connectx
