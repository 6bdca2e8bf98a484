#include "connectx/ethernet/eth_transmitter.h"

#include <algorithm>
#include <cstring>

#include "connectx/ethernet/transport_interface.h"
#include "connectx/port/network_port.h"
#include "ethernet/checksum_offload.h"
#include "ethernet/packet_info.h"
#include "ethernet/padding.h"
#include "ethernet/vlan_offload.h"
#include "wire/ethernet.h"

namespace softhca::connectx {

namespace {

using ethernet::L4Type;
using ethernet::PacketInfo;
using spec::connectx::cqe_syndrome;
using spec::connectx::min_wqe_inline_mode;

/// A VLAN tag to be inserted needs room in the head.
constexpr std::size_t kTagSize = 4;
constexpr std::size_t kHeadMax = wire::Frame::kHeadCapacity - kTagSize;
/// A message that can be no frame, nor an LSO message of max_lso_cap bytes.
constexpr std::size_t kSendSizeMax = 64 << 10;
constexpr std::size_t kLsoSizeMax = 256 << 10;

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

/// Headers that must be inline in the WQE (PRM 7.9.3.1).
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
                                                          EthTransmission& progress) {
  const auto made =
      wqe.lso ? gather_segment(wqe, rules, progress) : gather_frame(wqe, rules, progress);
  if (made) transmit(wqe, rules);
  return made;
}

tl::expected<void, EthWqeFault> EthTransmitter::gather_frame(const EthSendWqe& wqe,
                                                             const EthSendRules& rules,
                                                             EthTransmission& progress) {
  progress.finished = true;
  if (wqe.payload_size > kSendSizeMax) return length_fault(WqeFault::kFrameTooLong);
  const auto total = wqe.inline_header.size() + static_cast<std::size_t>(wqe.payload_size);
  frame_.clear();
  auto head = frame_.resize_head(std::min(total, kHeadMax));
  auto body = frame_.own_payload(total - head.size());
  // The inline headers first, wherever they end.
  auto header = wqe.inline_header;
  for (auto* part : {&head, &body}) {
    const auto n = std::min(part->size(), header.size());
    if (n != 0) std::memcpy(part->data(), header.data(), n);
    *part = part->subspan(n);
    header = header.subspan(n);
  }
  if (auto copied = progress.gather.copy(wqe, keys_, rules.user, head); !copied) return copied;
  return progress.gather.copy(wqe, keys_, rules.user, body);
}

tl::expected<void, EthWqeFault> EthTransmitter::gather_segment(const EthSendWqe& wqe,
                                                               const EthSendRules& rules,
                                                               EthTransmission& progress) {
  if (!progress.segmenter) {
    if (wqe.payload_size > kLsoSizeMax) return length_fault(WqeFault::kLsoTooLong);
    auto segmenter = ethernet::Segmenter::create(
        wqe.inline_header, static_cast<std::size_t>(wqe.payload_size), wqe.mss);
    if (!segmenter) return bad_wqe(fault_of(segmenter.error()));
    progress.segmenter = *segmenter;
  }
  const auto part = progress.segmenter->next(frame_);
  progress.finished = progress.segmenter->done();
  return progress.gather.copy(wqe, keys_, rules.user, frame_.own_payload(part.size));
}

void EthTransmitter::transmit(const EthSendWqe& wqe, const EthSendRules& rules) {
  bool sendable = frame_.size() >= wire::EthernetLayout::kSize;
  if (sendable && wqe.insert_tag) {
    sendable = ethernet::insert_vlan(frame_, wqe.insert_tag->tpid, wqe.insert_tag->tci);
  }
  if (!sendable) return port_.count_transmit_error(frame_.size());
  const auto packet = ethernet::classify(frame_);
  if (wqe.inline_header.size() < required_inline(packet, rules.min_inline_mode)) {
    // PRM Table 61: "If Eth Segment of the WQE does not contain the required inlined headers, the
    // packet is silently dropped."
    return port_.count_transmit_error(frame_.size());
  }
  if (wqe.l4_checksum) ethernet::insert_l4_checksum(frame_, packet);
  if (wqe.l3_checksum) ethernet::insert_l3_checksum(frame_, packet);
  ethernet::pad_to_minimum(frame_);
  port_.transmit_ethernet(frame_, rules.tis->transport_domain(), rules.tis->priority());
}

}  // namespace softhca::connectx
