// The headers of a flow that were taken apart once: of the frames that follow most is known.
//
// A frame has known headers if all of them are as long and say the same, but for what differs from
// packet to packet: lengths, identifications and checksums, sequence numbers, windows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ethernet/packet_info.h"
#include "util/field.h"
#include "wire/frame.h"

namespace softhca::ethernet {

class KnownHeader {
 public:
  /// Headers must end before this byte, but for TCP options.
  static constexpr std::size_t kSize = 96;

  /// Whether headers of this kind can be known: whole TCP or UDP, not too long, and not RoCEv2,
  /// whose packets the transport knows.
  static bool can_be_known(const PacketInfo& packet);
  /// @pre can_be_known(packet), which is classify(frame). `tcp_flags`: they count as well, and a
  /// frame with others is not known.
  void remember(const wire::Frame& frame, const PacketInfo& packet, bool tcp_flags);
  /// What classify(frame) would say; null if its headers are not these. Valid until the next call.
  const PacketInfo* parse(const wire::Frame& frame);

  /// Bytes of all headers. @pre one is remembered
  std::size_t size() const { return headers_size_; }

  /// Differs from flow to flow, mostly. @pre the head has an Ethernet header
  static std::size_t hash(const wire::Frame& frame);

 private:
  static constexpr std::size_t kWords = kSize / sizeof(std::uint64_t);
  using Words = std::array<std::uint64_t, kWords>;

  /// Where bits are 1 in mask_, they count.
  template <class Layout>
  util::MutableView<Layout> mask(std::size_t offset);
  std::size_t ip_size(const wire::Frame& frame) const;

  Words mask_{};
  Words value_{};
  std::size_t words_ = 0;  ///< that are compared
  std::size_t headers_size_ = SIZE_MAX;
  PacketInfo packet_;
};

}  // namespace softhca::ethernet
