// A TCP packet in IPv4, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ethernet/checksum_offload.h"
#include "ethernet/packet_info.h"
#include "util/endian.h"
#include "wire/checksum.h"
#include "wire/frame.h"
#include "wire/frame_bytes.h"

namespace softhca::server {

inline constexpr std::uint16_t kTcpAt = 14 + 20;
inline constexpr std::size_t kTcpPayloadAt = kTcpAt + 20;
inline constexpr std::uint32_t kTcpSequence = 0xfffffff0;
inline constexpr unsigned kTcpPush = 8;

/// The TCP checksum: as a card makes it, or what the kernel leaves to a card.
enum class Checksums : std::uint8_t { kMade, kPseudoHeader };

inline std::vector<std::byte> tcp_frame(std::size_t payload, unsigned flags, Checksums checksums) {
  std::vector<std::byte> bytes(kTcpPayloadAt + payload);
  auto* const at = bytes.data();
  util::store_be16(at, 0x0200), util::store_be32(at + 2, 2);
  util::store_be16(at + 6, 0x0200), util::store_be32(at + 8, 1);
  util::store_be16(at + 12, 0x0800);
  util::store_be16(at + 14, 0x4500);
  util::store_be16(at + 16, static_cast<std::uint16_t>(bytes.size() - 14));
  util::store_be32(at + 22, 0x40060000);
  util::store_be32(at + 26, 0x0a4d0002);
  util::store_be32(at + 30, 0x0a4d0001);
  util::store_be32(at + kTcpAt, 0x10002000);
  util::store_be32(at + kTcpAt + 4, kTcpSequence);
  util::store_be32(at + kTcpAt + 12, 0x50100400 | flags << 16);
  for (std::size_t i = 0; i != payload; ++i) bytes[kTcpPayloadAt + i] = std::byte(i * 7 + i / 251);
  auto frame = wire::Frame::from_bytes(bytes);
  const auto info = ethernet::classify(frame);
  ethernet::insert_l3_checksum(frame, info);
  if (checksums == Checksums::kMade) {
    ethernet::insert_l4_checksum(frame, info);
    return wire::bytes_of(frame);
  }
  auto out = wire::bytes_of(frame);
  wire::ChecksumSum sum;
  sum.add(std::span(out).subspan(26, 8));
  sum.add_u16(6);
  sum.add_u16(static_cast<std::uint16_t>(20 + payload));
  util::store_be16(out.data() + kTcpAt + 16, sum.value());
  return out;
}

}  // namespace softhca::server
