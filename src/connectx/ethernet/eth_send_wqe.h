// Send WQEs of an SQ (PRM 7.4.4.1): control segment, Eth segment, data segments.
//
// The decoder reads the device's own copy of a WQE, because software may rewrite the ring at any
// time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tl/expected.hpp>

#include "connectx/queue/wqe_fault.h"
#include "ethernet/packet_info.h"
#include "rdma/memory_key.h"
#include "spec/connectx/opcodes.h"
#include "wire/frame.h"

namespace softhca::rdma {
class Gathering;
}  // namespace softhca::rdma

namespace softhca::connectx {

/// The error of a WQE for its CQE: a syndrome of the document, and a reason. The reason is a
/// WqeFault or comes from the memory key.
struct EthWqeFault {
  spec::connectx::cqe_syndrome syndrome;
  rdma::Reason reason;
};
tl::unexpected<EthWqeFault> protection_error(rdma::Reason reason);
/// The error of a malformed WQE.
tl::unexpected<EthWqeFault> bad_wqe(WqeFault fault);

/// An entry of a gather list: bytes in the WQE, or memory behind a key.
struct EthDataSegment {
  std::span<const std::byte> inline_data;  ///< the bytes; null data(): they are behind `key`
  rdma::MKey key;
  std::uint64_t address = 0;
  std::uint64_t size = 0;  ///< bytes
};

/// A decoded SEND or LSO WQE. Spans point into the copy of the WQE.
struct EthSendWqe {
  /// DS has 6 bits, so a WQE has at most 63 units of 16 bytes. Control and Eth segment take two.
  static constexpr std::size_t kSegmentsMax = 61;

  bool lso = false;
  bool multi_packet = false;  ///< cut into packets of `mss` bytes, each with its headers
  bool l3_checksum = false;
  bool l4_checksum = false;
  std::uint16_t mss = 0;
  std::optional<ethernet::PacketInfo::Tag> insert_tag;
  std::span<const std::byte> inline_header;
  std::array<EthDataSegment, kSegmentsMax> segments;
  std::size_t segment_count = 0;
  std::uint64_t payload_size = 0;  ///< bytes of all segments

  /// `wqe`: exactly the DS * 16 bytes of the WQE. They must outlive this object.
  /// `multi_packet_sends`: a property of the model.
  tl::expected<void, EthWqeFault> decode(std::span<const std::byte> wqe,
                                         bool multi_packet_sends = false);

 private:
  tl::expected<std::size_t, EthWqeFault> decode_eth(std::span<const std::byte> wqe);
  tl::expected<void, EthWqeFault> decode_data(std::span<const std::byte> data);
};

/// Iterates over a gather list once.
class EthGather {
 public:
  EthGather() = default;

  void start() {
    segment_ = 0;
    offset_ = 0;
  }
  /// Copies the next out.size() bytes. @pre the list has that many more
  tl::expected<void, EthWqeFault> copy(const EthSendWqe& wqe, rdma::KeyTable& keys,
                                       const rdma::KeyUser& user, std::span<std::byte> out);
  /// Appends the next `size` bytes to `to`. If `to` is null, skips them, but still checks their
  /// keys.
  /// @pre the list has that many more
  tl::expected<void, EthWqeFault> append(const EthSendWqe& wqe, rdma::KeyTable& keys,
                                         const rdma::KeyUser& user, std::size_t size,
                                         rdma::Gathering* to);
  /// Adds the next `size` bytes to the frame by reference. False, with no effect, if some bytes are
  /// in the WQE, are not local memory or are in too many pieces, or if a key refuses them.
  /// @pre the list has that many more, and the frame has no segments
  bool refer(const EthSendWqe& wqe, rdma::KeyTable& keys, const rdma::KeyUser& user,
             std::size_t size, wire::Frame& frame);

 private:
  template <class Visitor>
  tl::expected<void, EthWqeFault> walk(const EthSendWqe& wqe, rdma::KeyTable& keys,
                                       const rdma::KeyUser& user, std::size_t size,
                                       Visitor visitor);

  std::size_t segment_ = 0;
  std::uint64_t offset_ = 0;  ///< offset in the segment
};

}  // namespace softhca::connectx
