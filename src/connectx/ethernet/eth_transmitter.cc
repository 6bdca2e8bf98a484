#include "connectx/ethernet/eth_transmitter.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/ethernet/transport_interface.h"
#include "connectx/port/network_port.h"
#include "connectx/steering/flow_match.h"
#include "connectx/steering/flow_table.h"
#include "ethernet/checksum_offload.h"
#include "ethernet/large_send.h"
#include "ethernet/packet_info.h"
#include "ethernet/padding.h"
#include "ethernet/vlan_offload.h"
#include "rdma/scatter_gather.h"
#include "util/copy_short.h"
#include "wire/ethernet.h"

namespace softhca::connectx {

namespace {

using ethernet::L4Type;
using ethernet::PacketInfo;
using spec::connectx::cqe_syndrome;
using spec::connectx::min_wqe_inline_mode;

/// Tables and groups that a lookup may visit within the cost of one frame, and the cost of each
/// further one.
constexpr std::size_t kSendStepsDue = 64;
constexpr std::int64_t kSendStepWork = 30;
/// Room in the head for a VLAN tag, which is inserted later.
constexpr std::size_t kTagSize = 4;
constexpr std::size_t kHeadMax = wire::Frame::kHeadCapacity - kTagSize;
/// Limits on messages. Longer ones are neither a frame nor an LSO message of max_lso_cap bytes.
constexpr std::size_t kSendSizeMax = 64 << 10;
constexpr std::size_t kLsoSizeMax = std::size_t{1} << kLogLsoMax;
/// Limit on multi-packet WQEs, for which no document has one. It exceeds 61 packets of any MTU.
constexpr std::size_t kMultiPacketSizeMax = 1 << 20;
/// Limit on the bytes of one walk over charged keys. If all pieces are one byte behind three levels
/// of keys, the walk costs about the work of a turn.
constexpr std::size_t kChargedPartMax = 256;

tl::unexpected<EthWqeFault> length_fault(WqeFault fault) {
  return tl::unexpected<EthWqeFault>(
      EthWqeFault{cqe_syndrome::LOCAL_LENGTH_ERROR, reason_of(fault)});
}

WqeFault fault_of(ethernet::SegmentationError error) {
  switch (error) {
    case ethernet::SegmentationError::kHeaderTooLong:
      return WqeFault::kLsoHeadersTooLong;
    case ethernet::SegmentationError::kNotTcpOrUdp:
      return WqeFault::kLsoNotTcpOrUdp;
    case ethernet::SegmentationError::kHeaderEndsElsewhere:
      return WqeFault::kLsoHeadersEndElsewhere;
    case ethernet::SegmentationError::kMss:
      break;
  }
  return WqeFault::kLsoMss;
}

/// True if the payload is behind keys whose pieces are charged, because a guest chooses their
/// number.
bool is_charged(const EthSendWqe& wqe, rdma::KeyTable& keys) {
  if (!keys.has_charged()) return false;
  return std::ranges::any_of(
      std::span(wqe.segments).first(wqe.segment_count), [&](const EthDataSegment& segment) {
        return segment.inline_data.data() == nullptr && keys.is_charged(segment.key);
      });
}

/// Bytes of headers that must be inline in the WQE (PRM 7.9.3.1).
std::size_t required_inline(const PacketInfo& packet, min_wqe_inline_mode mode) {
  switch (mode) {
    case min_wqe_inline_mode::NONE:
      return 0;
    case min_wqe_inline_mode::L2:
      return packet.l3_offset;
    case min_wqe_inline_mode::IP:
      return std::max(packet.l3_offset, packet.l4_offset);
    case min_wqe_inline_mode::TCP_UDP:
      break;
  }
  const auto l4_end = packet.l4 == L4Type::kNone ? 0 : packet.l4_offset + packet.l4_header_size;
  return std::max<std::size_t>({packet.l3_offset, packet.l4_offset, std::size_t(l4_end)});
}

}  // namespace

tl::expected<void, EthWqeFault> EthTransmitter::send_next(const EthSendWqe& wqe,
                                                          const EthSendRules& rules,
                                                          unsigned packets_max,
                                                          EthTransmission& progress) {
  const auto made = progress.begun     ? gather_rest(wqe, rules, progress)
                    : wqe.lso          ? gather_segment(wqe, rules, packets_max, progress)
                    : wqe.multi_packet ? gather_packet(wqe, rules, progress)
                                       : gather_frame(wqe, rules, progress);
  progress.packets = made ? frame_.packets() : 1;
  if (made) transmit(wqe, rules, progress);
  return made;
}

tl::expected<void, EthWqeFault> EthTransmitter::gather_frame(const EthSendWqe& wqe,
                                                             const EthSendRules& rules,
                                                             EthTransmission& progress) {
  progress.finished = true;
  if (wqe.payload_size > kSendSizeMax) return length_fault(WqeFault::kFrameTooLong);
  const auto total = wqe.inline_header.size() + static_cast<std::size_t>(wqe.payload_size);
  frame_.clear();
  piece_ = {};
  const auto head = frame_.resize_head(std::min(total, kHeadMax));
  const auto header = wqe.inline_header;
  const auto in_head = std::min(head.size(), header.size());
  if (in_head != 0) std::memcpy(head.data(), header.data(), in_head);
  if (in_head != header.size()) {
    // The inline headers do not fit into the head. No protocol has so many headers.
    return gather_payload(wqe, rules, progress, static_cast<std::size_t>(wqe.payload_size),
                          header.subspan(in_head));
  }
  if (wqe.segment_count == 1 && total > head.size()) {
    const auto direct = gather_piece(wqe.segments[0], rules, head.subspan(in_head));
    if (!direct) return tl::unexpected(direct.error());
    if (*direct) return {};
  }
  if (auto copied = progress.gather.copy(wqe, keys_, rules.user, head.subspan(in_head)); !copied) {
    return copied;
  }
  return gather_payload(wqe, rules, progress, total - head.size());
}

/// Fast path for nearly all WQEs, whose headers and payload are one piece of local memory. False if
/// they are not.
tl::expected<bool, EthWqeFault> EthTransmitter::gather_piece(const EthDataSegment& segment,
                                                             const EthSendRules& rules,
                                                             std::span<std::byte> headers) {
  if (segment.inline_data.data() != nullptr) return false;
  const auto key =
      keys_.check(segment.key, rules.user, segment.address, segment.size, rdma::kLocalRead);
  if (!key) return protection_error(key.reason);
  const auto* const host =
      keys_.one_piece(*key.key, segment.address, segment.size, pcie::DmaAccess::kRead);
  if (host == nullptr) return false;
  piece_ = {host, static_cast<std::size_t>(segment.size)};
  if (!headers.empty()) std::memcpy(headers.data(), host, headers.size());
  const bool added = frame_.add_segment(piece_.subspan(headers.size()));
  assert(added);
  return added;
}

tl::expected<void, EthWqeFault> EthTransmitter::gather_payload(const EthSendWqe& wqe,
                                                               const EthSendRules& rules,
                                                               EthTransmission& progress,
                                                               std::size_t size,
                                                               std::span<const std::byte> before) {
  const auto payload = before.size() + size;
  if (frame_.head().size() + payload > NetworkPort::kMaxMtu) {
    // The port will drop the frame for its size, so its payload is not read.
    (void)frame_.own_payload(payload);
    return progress.gather.append(wqe, keys_, rules.user, size, nullptr);
  }
  rdma::Gathering gathering(keys_, payload, frame_);
  if (!before.empty()) gathering.add(before);
  if (size > kChargedPartMax && is_charged(wqe, keys_)) {
    return gather_parts(wqe, rules, progress, size, gathering);
  }
  return progress.gather.append(wqe, keys_, rules.user, size, &gathering);
}

/// Gathers the next `size` bytes in parts. If the work of the turn is used up, keeps the frame for
/// the next turn.
tl::expected<void, EthWqeFault> EthTransmitter::gather_parts(const EthSendWqe& wqe,
                                                             const EthSendRules& rules,
                                                             EthTransmission& progress,
                                                             std::size_t size,
                                                             rdma::Gathering& gathering) {
  for (;;) {
    const auto n = std::min(size, kChargedPartMax);
    auto added = progress.gather.append(wqe, keys_, rules.user, n, &gathering);
    size -= n;
    if (!added || size == 0) return added;
    if (over_budget()) break;
  }
  gathering.own();
  progress.begun = std::make_unique<EthTransmission::BegunFrame>(
      std::move(frame_), size, std::exchange(progress.finished, false));
  return {};
}

/// Continues the frame that an earlier turn began.
tl::expected<void, EthWqeFault> EthTransmitter::gather_rest(const EthSendWqe& wqe,
                                                            const EthSendRules& rules,
                                                            EthTransmission& progress) {
  const auto begun = std::exchange(progress.begun, nullptr);
  frame_ = std::move(begun->frame);
  piece_ = {};
  progress.finished = begun->finished;
  const auto payload = frame_.own_payload(frame_.segments()[0].size());
  rdma::Gathering gathering(keys_, frame_, payload.last(begun->left));
  return gather_parts(wqe, rules, progress, begun->left, gathering);
}

tl::expected<void, EthWqeFault> EthTransmitter::gather_segment(const EthSendWqe& wqe,
                                                               const EthSendRules& rules,
                                                               unsigned packets_max,
                                                               EthTransmission& progress) {
  if (!progress.segmenter) {
    if (wqe.payload_size > kLsoSizeMax) return length_fault(WqeFault::kLsoTooLong);
    auto segmenter = ethernet::Segmenter::create(
        wqe.inline_header, static_cast<std::size_t>(wqe.payload_size), wqe.mss);
    if (!segmenter) return bad_wqe(fault_of(segmenter.error()));
    progress.segmenter = *segmenter;
  }
  piece_ = {};
  const auto part = progress.segmenter->next(frame_);
  progress.finished = progress.segmenter->done();
  const auto middles = std::min<std::size_t>(packets_max - 1, progress.segmenter->middles());
  if (middles != 0 && gather_train(wqe, rules, middles, progress)) return {};
  return gather_payload(wqe, rules, progress, part.size);
}

/// Gathers the next mss bytes of a multi-packet WQE, which are a packet with all its headers. The
/// last packet may be shorter.
tl::expected<void, EthWqeFault> EthTransmitter::gather_packet(const EthSendWqe& wqe,
                                                              const EthSendRules& rules,
                                                              EthTransmission& progress) {
  if (wqe.payload_size > kMultiPacketSizeMax) return length_fault(WqeFault::kMultiPacketTooLong);
  const auto left = wqe.payload_size - progress.cut;
  const auto total = static_cast<std::size_t>(std::min<std::uint64_t>(wqe.mss, left));
  progress.cut += total;
  progress.finished = progress.cut == wqe.payload_size;
  frame_.clear();
  piece_ = {};
  const auto head = frame_.resize_head(std::min(total, kHeadMax));
  if (auto copied = progress.gather.copy(wqe, keys_, rules.user, head); !copied) return copied;
  return gather_payload(wqe, rules, progress, total - head.size());
}

/// Extends frame_ to a train of the same packets that Segmenter would make. False if the caller
/// must make the packets one by one: the fabric does not accept trains, or some of the memory
/// cannot be referenced. The caller then finds a fault in the right packet.
bool EthTransmitter::gather_train(const EthSendWqe& wqe, const EthSendRules& rules,
                                  std::size_t middles, EthTransmission& progress) {
  const auto packets = static_cast<unsigned>(middles + 1);
  // Trains have no short packets, since each is padded, and no multicast packets, since the looped
  // copy of each must follow it.
  const bool short_packets = frame_.head().size() + wqe.mss < ethernet::kFrameSizeMin;
  const bool to_many = cast_of(frame_) != Cast::kUnicast;
  if (short_packets || to_many || has_tables_ || !port_.takes_trains()) return false;
  // A train through such keys would cost too much for a turn.
  if (is_charged(wqe, keys_)) return false;
  if (!progress.gather.refer(wqe, keys_, rules.user, packets * wqe.mss, frame_)) return false;
  progress.segmenter->skip(middles);
  ethernet::make_train(frame_, packets, wqe.mss, {.l3 = wqe.l3_checksum, .l4 = wqe.l4_checksum});
  return true;
}

/// Reduces the head to the headers, whose length was unknown when the head was copied. The payload
/// in it becomes a reference, so that it is not copied again.
void EthTransmitter::shorten_head(std::size_t headers) {
  if (piece_.empty()) return;
  const auto surplus = frame_.head().size() - headers;
  const auto behind = frame_.segments()[0];
  const auto before = static_cast<std::size_t>(behind.data() - piece_.data());
  if (before < surplus) return;  // part of it was in the WQE
  (void)frame_.own_payload(0);
  (void)frame_.resize_head(headers);
  const bool added = frame_.add_segment(piece_.subspan(before - surplus));
  assert(added);
  (void)added;
}

const PacketInfo& EthTransmitter::classify(SentHeaders& headers) {
  auto& entry = flows_[ethernet::FlowHeaders::hash(frame_) % flows_.size()];
  if (const auto* packet = entry.classify_fast(frame_)) {
    headers = {&entry, entry.flow()};
    shorten_head(entry.size());
    return *packet;
  }
  packet_ = ethernet::classify(frame_);
  if (ethernet::FlowHeaders::can_be_cached(packet_)) entry.remember(frame_, packet_, false);
  return packet_;
}

void EthTransmitter::transmit(const EthSendWqe& wqe, const EthSendRules& rules,
                              EthTransmission& progress) {
  bool sendable = frame_.size() >= wire::EthernetLayout::kSize;
  if (sendable && wqe.insert_tag) {
    sendable = ethernet::insert_vlan(frame_, wqe.insert_tag->tpid, wqe.insert_tag->tci);
  }
  if (!sendable) {
    // If progress.begun has the frame, frame_ is empty. Else it is too short to be a frame.
    if (progress.begun == nullptr) port_.count_transmit_error(frame_);
    return;
  }
  SentHeaders headers;
  const auto& packet = classify(headers);
  if (wqe.inline_header.size() < required_inline(packet, rules.min_inline_mode)) {
    // PRM Table 61: "If Eth Segment of the WQE does not contain the required inlined headers, the
    // packet is silently dropped."
    return port_.count_transmit_error(frame_);
  }
  if (has_tables_ && !is_allowed(packet)) return;
  if (frame_.packets() == 1) finish_packet(wqe, packet);
  if (!has_tables_) progress.headers = headers;
  const bool refers = !frame_.segments().empty() && !frame_.owns_segments();
  const auto number =
      port_.transmit_ethernet(frame_, rules.tis->transport_domain(), rules.tis->priority());
  if (refers) progress.last_frame = number;
}

void EthTransmitter::look_for_tables() {
  const bool had_tables =
      std::exchange(has_tables_, steering_.has_root(FlowSteering::Type::NIC_TX));
  // The headers of frames that were sent before the tables existed must not serve as templates.
  if (has_tables_ && !had_tables) flows_ = {};
}

bool EthTransmitter::is_allowed(const PacketInfo& packet) {
  FlowSteering::Search search;
  const bool sent = steering_.transmits(match_key_of(packet), frame_.size(), search);
  if (search.steps > kSendStepsDue) {
    keys_.work().charge(static_cast<std::int64_t>(search.steps - kSendStepsDue) * kSendStepWork);
  }
  return sent;
}

bool EthTransmitter::send_next_fast(std::span<const std::byte, kWqeBasicBlock> block,
                                    EthFrameTemplate& pattern, const EthSendRules& rules,
                                    std::uint64_t& last_frame) {
  const auto* const entry = pattern.headers.entry;
  if (entry == nullptr || entry->flow() != pattern.headers.flow) return false;
  const auto content = pattern.wqe.decode_fast(block);
  if (!content) return false;
  const auto head_size = entry->size();
  const auto in_wqe = content->header.size();
  const auto behind = head_size - in_wqe;
  // The WQE must have headers only, and the memory the remaining headers and some payload.
  if (in_wqe > head_size || content->size <= behind || content->size > kSendSizeMax) return false;
  const auto* const host = pattern.key.find(
      keys_, content->key, [&] { return rules.user; }, content->address, content->size,
      rdma::kLocalRead);
  if (host == nullptr) return false;
  auto& frame = port_.draft();
  const auto head = frame.begin(head_size, {host + behind, content->size - behind});
  util::copy_header(head.data(), content->header.data(), in_wqe);
  util::copy_header(head.data() + in_wqe, host, behind);
  if (!entry->finish(frame)) return false;
  last_frame = port_.transmit_ethernet(frame, rules.tis->transport_domain(), rules.tis->priority());
  return true;
}

/// Adds checksums and padding to a single packet. make_train() does this for a train.
void EthTransmitter::finish_packet(const EthSendWqe& wqe, const PacketInfo& packet) {
  if (wqe.l4_checksum) ethernet::insert_l4_checksum(frame_, packet);
  if (wqe.l3_checksum) ethernet::insert_l3_checksum(frame_, packet);
  ethernet::pad_to_minimum(frame_);
}

}  // namespace softhca::connectx
