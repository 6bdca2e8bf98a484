#include "connectx/ethernet/eth_send_wqe.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "connectx/ethernet/eth_wqe_template.h"
#include "connectx/queue/data_segment.h"
#include "connectx/queue/send_control.h"
#include "rdma/scatter_gather.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"
#include "wire/ethernet.h"

namespace softhca::connectx {

namespace {

using spec::connectx::cqe_syndrome;
using spec::connectx::data_segment_inline;
using spec::connectx::data_segment_pointer;
using spec::connectx::wqe_ctrl_segment;
using spec::connectx::wqe_eth_insert_vlan;
using spec::connectx::wqe_eth_segment;
using spec::connectx::wqe_opcode;

constexpr std::size_t kUnit = kWqeUnit;
/// mlx5 driver interface 8.3: opcode LSO with this modifier is a multi-packet send WQE.
constexpr std::uint32_t kMultiPacketModifier = 1;

std::size_t round_to_unit(std::size_t size) { return (size + kUnit - 1) / kUnit * kUnit; }

}  // namespace

tl::unexpected<EthWqeFault> protection_error(rdma::Reason reason) {
  return tl::unexpected<EthWqeFault>(EthWqeFault{cqe_syndrome::LOCAL_PROTECTION_ERROR, reason});
}

tl::unexpected<EthWqeFault> bad_wqe(WqeFault fault) {
  return tl::unexpected<EthWqeFault>(
      EthWqeFault{cqe_syndrome::LOCAL_QP_OPERATION_ERROR, reason_of(fault)});
}

tl::expected<void, EthWqeFault> EthSendWqe::decode(std::span<const std::byte> wqe,
                                                   bool multi_packet_sends) {
  const util::View<wqe_ctrl_segment> control(wqe);
  lso = wqe_opcode(control.get(wqe_ctrl_segment::opcode)) == wqe_opcode::LSO;
  multi_packet =
      lso && multi_packet_sends && control.get(wqe_ctrl_segment::opmod) == kMultiPacketModifier;
  lso = lso && !multi_packet;
  const auto eth_size = decode_eth(wqe.subspan(wqe_ctrl_segment::kSize));
  if (!eth_size) return tl::unexpected(eth_size.error());
  if (lso && mss == 0) return bad_wqe(WqeFault::kLsoWithoutMss);
  if (multi_packet && mss == 0) return bad_wqe(WqeFault::kMultiPacketWithoutMss);
  if (multi_packet && !inline_header.empty()) return bad_wqe(WqeFault::kMultiPacketInline);
  return decode_data(wqe.subspan(wqe_ctrl_segment::kSize + *eth_size));
}

/// Decodes the Eth segment. Returns its size with the inline headers, rounded up to a unit (PRM
/// 7.4.4.1.2).
tl::expected<std::size_t, EthWqeFault> EthSendWqe::decode_eth(std::span<const std::byte> bytes) {
  using L = wqe_eth_segment;
  if (bytes.size() < L::kSize) return bad_wqe(WqeFault::kNoEthSegment);
  const util::View<L> eth(bytes);
  insert_tag.reset();
  inline_header = {};
  l3_checksum = eth.get(L::l3cs) != 0;
  l4_checksum = eth.get(L::l4cs) != 0;
  if (eth.get(L::l3cs_inner) != 0 || eth.get(L::l4cs_inner) != 0) {
    return bad_wqe(WqeFault::kInnerChecksums);
  }
  mss = static_cast<std::uint16_t>(eth.get(L::mss));
  const util::View<wqe_eth_insert_vlan> insert(bytes.subspan(12));
  if (insert.get(wqe_eth_insert_vlan::insert_vlan) != 0) {
    const bool service = insert.get(wqe_eth_insert_vlan::svlan) != 0;
    const auto tpid = service ? wire::EtherType::kServiceVlan : wire::EtherType::kVlan;
    insert_tag = {.tpid = tpid,
                  .tci = static_cast<std::uint16_t>(insert.get(wqe_eth_insert_vlan::vlan_tci))};
    return L::kSize;
  }
  const std::size_t header = eth.get(L::inline_header_size);
  // The first two bytes of the inline headers are the last two bytes of the segment.
  const auto size = round_to_unit(std::max(L::kSize, L::inline_headers_offset + header));
  if (size > bytes.size()) return bad_wqe(WqeFault::kInlineHeadersTooLong);
  inline_header = bytes.subspan(L::inline_headers_offset, header);
  return size;
}

tl::expected<void, EthWqeFault> EthSendWqe::decode_data(std::span<const std::byte> data) {
  segment_count = 0;
  payload_size = 0;
  while (data.size() >= kUnit) {
    assert(segment_count < kSegmentsMax);
    auto& segment = segments[segment_count++];
    const util::View<data_segment_inline> in_wqe(data);
    if (in_wqe.get(data_segment_inline::inline_) != 0) {
      const std::size_t size = in_wqe.get(data_segment_inline::byte_count);
      const auto used = round_to_unit(data_segment_inline::data_offset + size);
      if (used > data.size()) return bad_wqe(WqeFault::kInlineTooLong);
      segment = {data.subspan(data_segment_inline::data_offset, size), {}, 0, size};
      payload_size += size;
      data = data.subspan(used);
      continue;
    }
    const util::View<data_segment_pointer> pointer(data);
    segment = {{},
               rdma::MKey(pointer.get(data_segment_pointer::l_key)),
               pointer.get(data_segment_pointer::local_address),
               segment_length(pointer.get(data_segment_pointer::byte_count))};
    payload_size += segment.size;
    data = data.subspan(kUnit);
  }
  return {};
}

void EthWqeTemplate::remember(std::span<const std::byte> wqe, const EthSendWqe& decoded) {
  const auto header_size = decoded.inline_header.size();
  const auto data_offset = round_to_unit(std::max(kFixed, kHeadersOffset + header_size));
  is_set_ = wqe.size() <= kWqeBasicBlock && !decoded.lso && !decoded.multi_packet &&
            decoded.l3_checksum && decoded.l4_checksum && !decoded.insert_tag &&
            decoded.segment_count == 1 && decoded.segments[0].inline_data.data() == nullptr;
  if (!is_set_) return;
  assert(data_offset + Pointer::kSize == wqe.size());
  header_size_ = static_cast<std::uint8_t>(header_size);
  data_offset_ = static_cast<std::uint8_t>(data_offset);
  std::array<std::byte, kFixed> mask{};
  std::ranges::fill(std::span(mask).first(kHeadersOffset), std::byte{0xFF});
  const util::MutableView<Ctrl> control(mask);
  control.set(Ctrl::wqe_index, 0);
  control.set(Ctrl::ce, 0);
  fixed_.set(wqe.first(kFixed), mask);
}

/// Passes the next `size` bytes of the list to `visitor`, part by part: `in_wqe(bytes)` for bytes
/// in the WQE, `in_memory(key, address, n)` for bytes behind a key that has passed its check. Both
/// return kNone, or the reason to stop the walk.
template <class Visitor>
[[gnu::always_inline]] inline tl::expected<void, EthWqeFault> EthGather::walk(
    const EthSendWqe& wqe, rdma::KeyTable& keys, const rdma::KeyUser& user, std::size_t size,
    Visitor visitor) {
  while (size != 0) {
    assert(segment_ < wqe.segment_count);
    const auto& segment = wqe.segments[segment_];
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size, segment.size - offset_));
    if (n == 0) {
      ++segment_;
      offset_ = 0;
      continue;
    }
    rdma::Reason fault;
    if (const auto* const in_wqe = segment.inline_data.data()) {
      fault = visitor.in_wqe({in_wqe + offset_, n});
    } else {
      const auto address = segment.address + offset_;
      const auto key = keys.check(segment.key, user, address, n, rdma::kLocalRead);
      if (!key) return protection_error(key.reason);
      fault = visitor.in_memory(*key.key, address, n);
    }
    if (fault != rdma::Reason::kNone) return protection_error(fault);
    size -= n;
    offset_ += n;
  }
  return {};
}

tl::expected<void, EthWqeFault> EthGather::copy(const EthSendWqe& wqe, rdma::KeyTable& keys,
                                                const rdma::KeyUser& user,
                                                std::span<std::byte> out) {
  struct Copier {
    rdma::KeyTable& keys;
    std::byte* to;

    rdma::Reason in_wqe(std::span<const std::byte> bytes) {
      std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
      return rdma::Reason::kNone;
    }
    rdma::Reason in_memory(rdma::MemoryKey& key, std::uint64_t address, std::size_t size) {
      const bool read = keys.read(key, address, {to, size});
      to += size;
      return read ? rdma::Reason::kNone : rdma::Reason::kMemoryUnreachable;
    }
  };
  return walk(wqe, keys, user, out.size(), Copier{keys, out.data()});
}

tl::expected<void, EthWqeFault> EthGather::append(const EthSendWqe& wqe, rdma::KeyTable& keys,
                                                  const rdma::KeyUser& user, std::size_t size,
                                                  rdma::Gathering* to) {
  struct Appender {
    rdma::Gathering* to;

    rdma::Reason in_wqe(std::span<const std::byte> bytes) const {
      if (to != nullptr) to->add(bytes);
      return rdma::Reason::kNone;
    }
    rdma::Reason in_memory(rdma::MemoryKey& key, std::uint64_t address, std::size_t size) const {
      return to == nullptr ? rdma::Reason::kNone : to->add(key, address, size);
    }
  };
  return walk(wqe, keys, user, size, Appender{to});
}

bool EthGather::refer(const EthSendWqe& wqe, rdma::KeyTable& keys, const rdma::KeyUser& user,
                      std::size_t size, wire::Frame& frame) {
  struct Referrer {
    rdma::KeyTable& keys;
    wire::Frame& frame;

    static rdma::Reason in_wqe(std::span<const std::byte> /*bytes*/) {
      return rdma::Reason::kMemoryUnreachable;
    }
    rdma::Reason in_memory(rdma::MemoryKey& key, std::uint64_t address, std::size_t size) {
      const bool fits = rdma::refer(keys, key, address, size, frame);
      return fits ? rdma::Reason::kNone : rdma::Reason::kMemoryUnreachable;
    }
  };
  auto at = *this;
  if (!at.walk(wqe, keys, user, size, Referrer{keys, frame})) {
    // Drop the references made so far.
    (void)frame.own_payload(0);
    return false;
  }
  *this = at;
  return true;
}

}  // namespace softhca::connectx
