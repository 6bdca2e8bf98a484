#include "connectx/ethernet/eth_receiver.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "connectx/base/timestamp.h"
#include "connectx/port/network_port.h"
#include "ethernet/checksum_offload.h"
#include "wire/checksum.h"
#include "wire/ethernet.h"
#include "wire/tcp.h"

namespace softhca::connectx {

namespace {

using ethernet::L3Type;
using ethernet::L4Type;
using ethernet::PacketInfo;
using spec::connectx::cqe64;
using spec::connectx::cqe_l3_hdr_type;
using spec::connectx::cqe_l4_hdr_type;
using spec::connectx::tir_disp_type;

/// Tables and groups that one lookup may visit within the cost of one frame. Drivers chain about
/// ten.
constexpr std::size_t kReceiveStepsDue = 64;
constexpr std::int64_t kReceiveStepWork = 30;
constexpr std::int64_t kCopyWork = 1500;
/// Limit on the work for pieces of keys and for messages. Above it, a turn makes no more copies.
constexpr std::int64_t kCopiesWorkMax = 500'000;

std::uint16_t sum_of(const wire::Frame& frame, std::size_t offset, std::size_t size) {
  wire::ChecksumSum sum;
  frame.for_each_piece(offset, size, [&](std::span<const std::byte> piece) { sum.add(piece); });
  return sum.value();
}

/// The sum of all bytes after the Ethernet header, or after the tag that ends at `tag_end`. The
/// capability cqe_checksum_full promises that inner tags and the padding after the IP packet count.
std::uint16_t full_checksum(const wire::Frame& frame, const PacketInfo& packet, std::size_t tag_end,
                            std::uint16_t ip_sum) {
  const auto end = packet.l3_offset + packet.l3_size;
  if (packet.l3_offset == tag_end && end >= frame.size()) return ip_sum;
  wire::ChecksumSum sum;
  sum.add_u16(ip_sum);
  sum.add_u16(sum_of(frame, tag_end, packet.l3_offset - tag_end));
  if (end >= frame.size()) return sum.value();
  const auto padding = sum_of(frame, end, frame.size() - end);
  // If the packet has an odd number of bytes, padding bytes are in the other halves of the words.
  sum.add_u16(packet.l3_size % 2 == 0 ? padding : std::rotl(padding, 8));
  return sum.value();
}

cqe_l3_hdr_type l3_hdr_type(const PacketInfo& packet) {
  switch (packet.l3) {
    case L3Type::kIpv4:
      return cqe_l3_hdr_type::IPV4;
    case L3Type::kIpv6:
      return cqe_l3_hdr_type::IPV6;
    case L3Type::kNone:
      break;
  }
  return cqe_l3_hdr_type::NONE;
}

cqe_l4_hdr_type l4_hdr_type(const PacketInfo& packet) {
  switch (packet.l4) {
    case L4Type::kUdp:
      return cqe_l4_hdr_type::UDP;
    case L4Type::kTcp:
      if ((packet.tcp_flags & wire::kTcpAck) == 0) return cqe_l4_hdr_type::TCP_NO_ACK;
      return packet.l4_size() > packet.l4_header_size ? cqe_l4_hdr_type::TCP_ACK_AND_DATA
                                                      : cqe_l4_hdr_type::TCP_ACK_NO_DATA;
    case L4Type::kNone:
      break;
  }
  return cqe_l4_hdr_type::NONE;
}

/// Bytes of the 802.1Q tag that an RQ may strip.
std::size_t outer_tag_size(const PacketInfo& packet) {
  const bool tagged = packet.tag && packet.tag->tpid == wire::EtherType::kVlan;
  return tagged ? ReceivedFrame::kVlanSize : 0;
}

/// Sets the CQE fields that all frames with the same known headers have in common, whichever RQ
/// they go to (PRM Table 68).
void describe_flow(util::MutableView<cqe64> cqe, const PacketInfo& packet) {
  if (packet.l3 != L3Type::kNone) {
    cqe.set(cqe64::ip_frag, packet.ip.fragment ? 1 : 0);
    cqe.set(cqe64::ip_ext_opts, packet.ip.options ? 1 : 0);
  }
  cqe.set(cqe64::l2_ok, 1);
  cqe.set(cqe64::l3_hdr_type, static_cast<std::uint32_t>(l3_hdr_type(packet)));
  cqe.set(cqe64::l4_hdr_type, static_cast<std::uint32_t>(l4_hdr_type(packet)));
}

/// Sets the remaining CQE fields. The checksum does not cover the outer tag, which has `tag_size`
/// bytes.
void describe_packet(util::MutableView<cqe64> cqe, const wire::Frame& frame,
                     const PacketInfo& packet, std::size_t tag_size, util::Time now) {
  const auto checked = ethernet::check(frame, packet);
  if (packet.l3 != L3Type::kNone) {
    const auto tag_end = wire::EthernetLayout::kSize + tag_size;
    cqe.set(cqe64::checksum, full_checksum(frame, packet, tag_end, checked.sum));
  }
  cqe.set(cqe64::l3_ok, checked.l3_ok ? 1 : 0);
  cqe.set(cqe64::l4_ok, checked.l4_ok ? 1 : 0);
  cqe.set(cqe64::timestamp, device_ticks(now));
}

/// Describes the delivery to one TIR. The RQ is not chosen yet.
ReceivedFrame describe_way(const wire::Frame& frame, const PacketInfo& packet,
                           const FlowSteering::Delivery& delivery) {
  const auto tag_size = outer_tag_size(packet);
  ReceivedFrame received;
  received.frame = &frame;
  received.flow_tag = delivery.flow_tag;
  if (tag_size == 0) return received;
  received.vlan_tci = packet.tag->tci;
  if (packet.l3 != L3Type::kNone) {
    received.tag_sum = sum_of(frame, wire::EthernetLayout::kSize, tag_size);
  }
  return received;
}

}  // namespace

const wire::Frame& EthReceiver::whole(const wire::Frame& arrived) {
  if (arrived.icrc() != wire::Frame::Icrc::kDeferred) return arrived;
  // A RoCE packet for no QP of this device goes to an RQ with all its bytes, like any other frame.
  whole_ = arrived;
  whole_.compute_icrc();
  return whole_;
}

/// Fills deliveries_ with the TIRs of the frame.
FlowSteering::Search EthReceiver::steer(FlowSteering::Type type, const wire::Frame& frame,
                                        const PacketInfo& packet) {
  deliveries_.clear();
  const auto search =
      parts_.steering.classify(type, match_key_of(packet), frame.size(), deliveries_);
  const auto copies = deliveries_.size();
  if (search.steps > kReceiveStepsDue) {
    parts_.keys.work().charge(static_cast<std::int64_t>(search.steps - kReceiveStepsDue) *
                              kReceiveStepWork);
  }
  if (copies > 1) parts_.keys.work().charge(static_cast<std::int64_t>(copies - 1) * kCopyWork);
  return search;
}

void EthReceiver::receive(const wire::Frame& arrived, util::Time now) {
  const auto& frame = whole(arrived);
  const auto packet = ethernet::classify(frame);
  const auto search = steer(FlowSteering::Type::NIC_RX, frame, packet);
  if (deliveries_.empty()) return parts_.port.count_discard(priority_of(frame));
  if (deliveries_.size() == 1 && search.steps <= kReceiveStepsDue && !search.counted &&
      ethernet::FlowHeaders::can_be_cached(packet)) {
    remember(frame, packet, search.tcp_flags);
  }
  deliver(frame, packet, now, false);
}

/// Caches the flow of the frame: its RQ, and a template of its CQE. @pre there is one delivery
void EthReceiver::remember(const wire::Frame& frame, const PacketInfo& packet, bool tcp_flags) {
  auto& flow = flows_[ethernet::FlowHeaders::hash(frame) % kFlows];
  flow.generation = generation_;
  flow.header.remember(frame, packet, tcp_flags);
  flow.received = describe_way(frame, packet, deliveries_[0]);
  flow.rq = &choose_queue(*parts_.tirs.find(deliveries_[0].tirn), packet, flow.received);
  flow.cqe = {};
  const util::MutableView<cqe64> cqe(flow.cqe);
  describe_flow(cqe, packet);
  flow.rq->describe_way(cqe, flow.received);
  // If steering depends on TCP flags, the id is not enough: it does not cover them. If there are
  // tags before L3, the checksum is another one.
  flow.has_id = !tcp_flags && packet.l3_offset == wire::EthernetLayout::kSize;
  flow.id = 0;
}

[[gnu::always_inline]] inline void EthReceiver::write_to(ReceiveQueue& rq,
                                                         const ReceivedFrame& received,
                                                         util::MutableView<cqe64> cqe) {
  rq.receive(received, cqe, scratch_);
  if (rq.flushes() && !std::exchange(rq.in_flush_list, true)) parts_.failed.push_back(rq.rqn());
}

[[gnu::always_inline]] inline void EthReceiver::receive_finished(Flow& flow,
                                                                 const wire::Frame& frame,
                                                                 util::Time now) {
  auto bytes = flow.finished_cqe;
  const util::MutableView<cqe64> cqe(bytes);
  if (flow.header.is_tcp()) {
    const auto type = l4_hdr_type(flow.header.classify_finished(frame));
    cqe.set(cqe64::l4_hdr_type, static_cast<std::uint32_t>(type));
  }
  cqe.set(cqe64::checksum, flow.header.sum_finished(frame.size()));
  cqe.set(cqe64::timestamp, device_ticks(now));
  flow.received.frame = &frame;
  write_to(*flow.rq, flow.received, cqe);
}

bool EthReceiver::receive_fast(const wire::Frame& frame, util::Time now) {
  const auto id = frame.flow();
  auto* const known = by_id_[id % kFlows];
  if (id != 0 && known != nullptr && known->id == id && known->generation == generation_) {
    receive_finished(*known, frame, now);
    return true;
  }
  auto& flow = flows_[ethernet::FlowHeaders::hash(frame) % kFlows];
  if (flow.generation != generation_) return false;
  const auto* packet = flow.header.classify_fast(frame);
  if (packet == nullptr) return false;
  auto bytes = flow.cqe;
  const util::MutableView<cqe64> cqe(bytes);
  if (packet->l4 == L4Type::kTcp) {
    cqe.set(cqe64::l4_hdr_type, static_cast<std::uint32_t>(l4_hdr_type(*packet)));
  }
  describe_packet(cqe, frame, *packet, flow.received.tag_size(), now);
  flow.received.frame = &frame;
  write_to(*flow.rq, flow.received, cqe);
  note_id(flow, id);
  return true;
}

/// Notes the id of the frame, unless it is not enough to identify the flow.
void EthReceiver::note_id(Flow& flow, wire::FlowId id) {
  if (id == 0 || !flow.has_id) return;
  flow.id = id;
  flow.finished_cqe = flow.cqe;
  const util::MutableView<cqe64> cqe(flow.finished_cqe);
  cqe.set(cqe64::l3_ok, 1);
  cqe.set(cqe64::l4_ok, 1);
  by_id_[id % kFlows] = &flow;
}

bool EthReceiver::receive_looped(const wire::Frame& arrived, TransportDomain domain,
                                 util::Time now) {
  const auto& frame = whole(arrived);
  const auto packet = ethernet::classify(frame);
  steer(FlowSteering::Type::NIC_RX, frame, packet);
  const bool multicast = packet.destination_mac.is_multicast();
  std::erase_if(deliveries_, [&](const FlowSteering::Delivery& delivery) {
    return !parts_.tirs.find(delivery.tirn)->accepts_loopback(domain, multicast);
  });
  if (deliveries_.empty()) return false;
  deliver(frame, packet, now, false);
  return true;
}

void EthReceiver::sniff(FlowSteering::Type type, const wire::Frame& arrived, util::Time now) {
  // All packets of a sent train are copied in one turn, so their work needs a limit.
  if (parts_.keys.work().pending() > kCopiesWorkMax) return;
  const auto& frame = whole(arrived);
  const auto packet = ethernet::classify(frame);
  steer(type, frame, packet);
  if (deliveries_.empty()) return;
  // The sender's charge does not include the first copy, either.
  parts_.keys.work().charge(kCopyWork);
  deliver(frame, packet, now, true);
}

/// Delivers the frame to each of deliveries_, within a limit of work. `is_copy`: for sniffers.
void EthReceiver::deliver(const wire::Frame& frame, const PacketInfo& packet, util::Time now,
                          bool is_copy) {
  util::Struct<cqe64> described;
  describe_flow(described, packet);
  describe_packet(described, frame, packet, outer_tag_size(packet), now);
  const auto before = parts_.keys.work().pending();
  for (const auto& delivery : deliveries_) {
    // Over its work budget: drop the copy, as a NIC with a full buffer does.
    if (parts_.keys.work().pending() - before > kCopiesWorkMax) {
      if (!is_copy) parts_.port.count_discard(priority_of(frame));
      continue;
    }
    auto received = describe_way(frame, packet, delivery);
    received.is_copy = is_copy;
    auto& rq = choose_queue(*parts_.tirs.find(delivery.tirn), packet, received);
    util::Struct<cqe64> cqe;
    std::ranges::copy(described.bytes(), cqe.bytes().begin());
    rq.describe_way(cqe, received);
    write_to(rq, received, cqe);
  }
}

ReceiveQueue& EthReceiver::choose_queue(const Tir& tir, const PacketInfo& packet,
                                        ReceivedFrame& received) {
  if (auto* rq = tir.queue()) return *rq;
  const auto& rqt = *tir.table();
  const auto hash = tir.hash(packet, rqt.max_size);
  received.rss_hash = hash.value;
  received.rss_hash_type = hash.type;
  return rqt.choose(hash.value);
}

}  // namespace softhca::connectx
