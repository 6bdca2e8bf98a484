// WQEs of a datagram queue pair (mlx5 driver interface 8.3): control segment, address vector, data.
// The first two fill a block; the data follow in the next.
#include <algorithm>
#include <cstring>

#include "driver/connectx/datagram.h"
#include "driver/connectx/queue_sizes.h"
#include "driver/connectx/send_queue.h"
#include "util/field.h"

namespace softhca::driver::connectx {

using spec::data_segment_inline;
using spec::data_segment_pointer;
using spec::wqe_completion;
using spec::wqe_ctrl_segment;
using spec::wqe_opcode;

namespace {

using Av = AddressVector::Layout;

/// Size in bytes of control segment and address vector.
constexpr std::size_t kDatagramFixed = wqe_ctrl_segment::kSize + Av::kSize;
static_assert(kDatagramFixed == SendQueue::kBlock);

std::size_t datagram_size(const SendRequest& request) {
  if (!request.inline_data.empty()) {
    return kDatagramFixed + inline_segment_size(request.inline_data.size());
  }
  auto size = kDatagramFixed;
  for (const auto& piece : request.pieces) size += piece.length == 0 ? 0 : kUnit;
  return size;
}

/// Composes a segment in a local copy, so that each byte of the device's memory is written once.
template <class Layout, class Fill>
void store(std::byte* to, Fill&& fill) {
  std::array<std::byte, Layout::kSize> segment{};
  fill(util::MutableView<Layout>(segment));
  std::memcpy(to, segment.data(), segment.size());
}

}  // namespace

AddressVector::AddressVector(const Attributes& attributes) {
  const util::MutableView<Layout> av(std::span(form_.bytes).first<Layout::kSize>());
  av.set(Layout::ext, 1);
  av.set(Layout::sl_eth_prio, attributes.priority);
  av.set(Layout::rlid_udp_sport, attributes.udp_source_port);
  av.set(Layout::tclass, attributes.traffic_class);
  av.set(Layout::hop_limit, attributes.hop_limit);
  av.set(Layout::grh, 1);
  av.set(Layout::src_addr_index, attributes.source_gid_index);
  av.set(Layout::flow_label, attributes.flow_label);
  std::ranges::copy(attributes.mac.bytes, av.sub(Layout::rmac).begin());
  std::ranges::copy(attributes.gid.bytes, av.sub(Layout::rgid_rip).begin());
}

unsigned SendQueue::blocks_per_datagram(const Limits& limits) {
  const auto inline_size = limits.inline_size == 0 ? 0 : inline_segment_size(limits.inline_size);
  return blocks_of(kDatagramFixed + std::max(limits.pieces * kUnit, inline_size));
}

PostStatus SendQueue::post_datagram(const SendRequest& request) {
  const bool immediate = request.opcode == SendOpcode::kSendWithImmediate;
  if (!immediate && request.opcode != SendOpcode::kSend) return PostStatus::kBadRequest;
  if (request.address == nullptr) return PostStatus::kBadRequest;
  if (request.inline_data.size() > limits().inline_size) return PostStatus::kInlineTooLong;
  if (!request.inline_data.empty() && !request.pieces.empty()) return PostStatus::kBadRequest;
  if (request.pieces.size() > limits().pieces) return PostStatus::kTooManyPieces;
  const auto size = datagram_size(request);
  const auto blocks = blocks_of(size);
  if (!has_room(blocks)) return PostStatus::kQueueFull;

  auto* const first = ring().data() + place();
  store<wqe_ctrl_segment>(first, [&](auto control) {
    const auto opcode = immediate ? wqe_opcode::SEND_IMM : wqe_opcode::SEND;
    const auto completion = request.signaled ? wqe_completion::CQE : wqe_completion::ON_ERROR;
    control.set(wqe_ctrl_segment::opcode, static_cast<std::uint32_t>(opcode));
    control.set(wqe_ctrl_segment::wqe_index, producer());
    control.set(wqe_ctrl_segment::sq_number, number());
    control.set(wqe_ctrl_segment::ds, static_cast<std::uint32_t>(size / kUnit));
    control.set(wqe_ctrl_segment::ce, static_cast<std::uint32_t>(completion));
    control.set(wqe_ctrl_segment::se, request.solicited);
    control.set(wqe_ctrl_segment::imm, immediate ? request.immediate : 0);
  });
  auto* const to = first + wqe_ctrl_segment::kSize;
  std::memcpy(to, request.address->bytes.data(), Av::kSize);
  const util::MutableView<Av> av({to, Av::kSize});
  av.set(Av::qkey, request.remote_qkey);
  av.set(Av::destination_qp_dct, request.remote_qpn);

  auto at = wrap(place() + kDatagramFixed);
  if (!request.inline_data.empty()) {
    store<data_segment_inline>(ring().data() + at, [&](auto header) {
      header.set(data_segment_inline::inline_, 1);
      header.set(data_segment_inline::byte_count,
                 static_cast<std::uint32_t>(request.inline_data.size()));
    });
    put(at + data_segment_inline::data_offset, request.inline_data);
  }
  for (const auto& piece : request.pieces) {
    if (piece.length == 0) continue;  // the device reads a 0 as 2^31 bytes
    store<data_segment_pointer>(ring().data() + at, [&](auto data) {
      data.set(data_segment_pointer::byte_count, piece.length);
      data.set(data_segment_pointer::l_key, piece.lkey);
      data.set(data_segment_pointer::local_address, piece.address);
    });
    at = wrap(at + kUnit);
  }
  add(request.id, blocks);
  return PostStatus::kOk;
}

}  // namespace softhca::driver::connectx
