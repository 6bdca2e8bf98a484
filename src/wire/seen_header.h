// The headers below the transport as they arrived once: what a connected QP gets has the same ones
// in every packet, and nobody needs to take them apart again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/frame.h"
#include "wire/ib_packet.h"

namespace softhca::wire {

class SeenHeader {
 public:
  /// Keeps those of `packet`, which was parsed from `frame`. Only of a frame that never left this
  /// process, whose writer said where the BTH begins: forgets them otherwise.
  void remember(const Frame& frame, const IbPacket& packet);
  void forget() { size_ = 0; }

  /// Whether the frame has them too. Its lengths and its header checksum may differ: nobody else
  /// than IbHeader wrote them.
  bool matches(const Frame& frame) const {
    if (size_ == 0 || frame.transport_offset() != size_ || frame.icrc() != Frame::Icrc::kDeferred ||
        frame.link() != link_) {
      return false;
    }
    const auto* const bytes = frame.head_room().data();
    return same<0, kUsualWords>(bytes) &&
           (size_ <= kUsualWords * sizeof(std::uint64_t) || same<kUsualWords, kWords>(bytes));
  }
  /// IbPacket::parse of a frame that matches, which is good until the next one is parsed; of the
  /// extended headers only those that it has. Null if what follows makes no sense.
  const IbPacket* parse(const Frame& frame);

 private:
  /// Ethernet, a tag, IPv6 and UDP.
  static constexpr std::size_t kWords = 9;
  /// Ethernet, IPv4 and UDP.
  static constexpr std::size_t kUsualWords = 6;
  using Words = std::array<std::uint64_t, kWords>;

  /// Bytes of a BTH before the word with AckReq and PSN.
  static constexpr std::size_t kBthStart = 8;

  void keep_bth(const Frame& frame);
  bool same_bth(const Frame& frame) const;
  bool parse_next(const Frame& frame, std::size_t end);

  template <std::size_t First, std::size_t Last>
  bool same(const std::byte* bytes) const {
    std::uint64_t difference = 0;
#pragma GCC unroll 9
    for (std::size_t i = First; i != Last; ++i) {
      std::uint64_t word;
      std::memcpy(&word, bytes + i * sizeof word, sizeof word);
      difference |= (word ^ bytes_[i]) & mask_[i];
    }
    return difference == 0;
  }

  Words bytes_;               ///< and behind them the start of the last BTH, if there is room
  Words mask_;                ///< zero where packets differ, and behind the headers
  IbPacket packet_;           ///< whose address and network offset stay
  std::uint8_t size_ = 0;     ///< of all headers before the BTH; 0: none
  std::uint8_t trailer_ = 0;  ///< bytes behind the ICRC
  Link link_ = Link::kEthernet;
};

}  // namespace softhca::wire
