// Packets as messages of sendmmsg(): one for each batch (roce_batch.h), or one for each packet.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hub/udp_address.h"
#include "wire/roce_datagram.h"

namespace softhca::hub {

class RoceDepartures {
 public:
  static constexpr std::size_t kPacketsMax = 64;

  /// Makes the messages of at most kPacketsMax packets, to which they refer. `batches`: whether a
  /// batch is one message.
  void make(std::span<const wire::RoceDatagram> packets, bool batches);
  std::size_t count() const { return count_; }
  /// The messages from number `at` on.
  std::span<mmsghdr> from(std::size_t at) { return std::span(headers_).first(count_).subspan(at); }
  /// The first packet of a message; of count(): the number of packets.
  std::size_t first(std::size_t at) const { return firsts_[at]; }
  std::size_t packets(std::size_t at) const { return firsts_[at + 1] - firsts_[at]; }
  /// Bytes of a message.
  std::size_t bytes(std::size_t at) const { return bytes_[at]; }
  bool has_batch() const { return count_ != firsts_[count_]; }
  /// Whether the first packet is for QP1. @pre count() != 0
  bool begins_with_gsi() const { return begins_with_gsi_; }

 private:
  /// Traffic class, hop limit and the length of a part.
  static constexpr std::size_t kControlSize = 3 * CMSG_SPACE(sizeof(int));

  void begin(const wire::RoceDatagram& packet, std::size_t first);
  void add(const wire::RoceDatagram& packet);
  void end(const wire::RoceDatagram& first, std::size_t end);

  bool begins_with_gsi_ = false;
  std::size_t count_ = 0;
  std::size_t pieces_ = 0;  ///< of all messages
  std::array<std::size_t, kPacketsMax + 1> firsts_{};
  std::array<std::size_t, kPacketsMax> bytes_{};
  std::array<mmsghdr, kPacketsMax> headers_{};
  std::array<iovec, kPacketsMax * wire::RoceDatagram::kPiecesMax> all_pieces_{};
  std::array<UdpAddress, kPacketsMax> destinations_{};
  alignas(cmsghdr) std::array<std::array<std::byte, kControlSize>, kPacketsMax> controls_{};
  /// ICRCs of packets that are parts of a batch, but not of a message.
  std::array<std::array<std::byte, wire::kIcrcSize>, kPacketsMax> icrcs_{};
};

}  // namespace softhca::hub
